"""What every layer of a quantised model answers: what it takes, what it gives, and what it computes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from concord.net.arithmetic.integer import IntegerProduct

#: The totals int64[groups, samples, rows] of a product for its codes int[groups, samples, columns]. Exact by default;
#: who counts overflows or models a narrow accumulator hands in another function.
Sums = Callable[[IntegerProduct, np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Trace:
    """What one layer returned for a batch.

    Attributes:
        outputs: uint16[samples, outputs], those of the last time step where the layer is recurrent. Real numbers where
            the FP32 network ran.
        codes:   int64[samples, inputs], the integer codes of the input of the one product of a layer, without padding;
            None where the layer has no such product, or several.
        hidden:  uint16[samples, time, outputs], every step of a sequence (zero behind a sample's end), or None.
        states:  uint16[samples, outputs] for each state of a recurrent layer after the last step, in its cell's order.
    """

    outputs: np.ndarray
    codes: np.ndarray | None = None
    hidden: np.ndarray | None = None
    states: tuple[np.ndarray, ...] = ()


class Layer:
    """A layer of a quantised model.

    A layer is a frozen dataclass whose fields are what its file holds. All that other rooms ask about it by its kind
    is answered by these attributes and methods, or by a function that is registered for its class.

    Attributes:
        name:     Unique in its model.
        outputs:  Number of elements of its result, or of a time step of it.
        title:    What people call its kind.
        sequence: Whether it takes the vectors of all time steps.
        reverse:  Whether it begins with the last time step.
        keeps_shape: Whether its result has the shape of its input, which it does not know.
        ends:     Whether it stands at the end of a model only, behind the layer whose result it takes.
        float_operator: The operator of the float network that it was quantised from, until `net.float_network` puts it
            into the graph beside the model; None where it has no numbers, or they are not known.
    """

    __slots__ = ()

    name: str
    outputs: int
    title = ""
    sequence = False
    reverse = False
    keeps_shape = False
    ends = False

    @property
    def takes(self) -> tuple[int, ...] | None:
        """Elements of each tensor that enters; None where they are not known."""
        return (self.inputs,)

    @property
    def entering(self) -> tuple[int, ...]:
        """The shape of one sample of the first tensor that enters."""
        return self.takes[:1]

    @property
    def makes_sequence(self) -> bool:
        """Whether it gives a vector for each time step."""
        return self.sequence

    @property
    def multiplications(self) -> int:
        """Number of products of a weight and an input, for one sample, or for one time step where `sequence`."""
        return 0

    @property
    def clips(self) -> bool:
        """Whether its quantiser clips its input at 0, so that it is the activation function of the layer before it."""
        return False

    def run(self, x: Sequence[np.ndarray], lengths: np.ndarray | None, sums: Sums = IntegerProduct.totals) -> Trace:
        """The layer in golden arithmetic.

        Args:
            x:       uint16[samples, size] for each tensor that enters; [samples, time, inputs] where `sequence`.
            lengths: int[samples], time steps of each sample; only recurrent layers look at it.
            sums:    Computes the totals of integer products.
        """
        raise ValueError(f"layer {self.name!r} is of the unknown kind {self.title!r}; golden cannot run it")

    def real_input(self, trace: Trace) -> np.ndarray | None:
        """What enters in real units float64[samples, inputs], by the codes of a trace; None where there are none."""
        return None

    def real_outputs(self, trace: Trace) -> np.ndarray:
        """The outputs of a trace in real units, float64[samples, outputs]."""
        return trace.outputs.view(np.float16).astype(np.float64)

    def products(self) -> tuple[IntegerProduct, ...]:
        """The layer's products in integer mode.

        Raises:
            ValueError: the layer multiplies, but not integers.
        """
        return ()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Unknown(Layer):
    """A layer of a kind that this version does not know, kept so that the compiler can name it.

    Attributes:
        name: Unique in its model.
        kind: What the file calls it.
    """

    name: str
    kind: str

    takes = None
    outputs = None

    @property
    def title(self) -> str:
        return self.kind


def unchecked(layer: Layer, **changes) -> Layer:
    """A layer with other values of some fields, which are not checked: arrays may hold real numbers."""
    made = object.__new__(type(layer))
    for field in fields(layer):
        object.__setattr__(made, field.name, changes.get(field.name, getattr(layer, field.name)))
    return made


def no_integers(layer: Layer) -> ValueError:
    """Why the sums of a layer in block floating point cannot be counted or wrapped."""
    return ValueError(
        f"layer {layer.name!r} has no integer weights: overflow is counted in integer mode only, and what a sum in "
        "block floating point needs depends on the machine's exponents")
