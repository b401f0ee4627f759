"""Layers that join tensors, and the softmax at the end of a network."""

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
from concord.golden.mfu.multifunction import activate, compute
from concord.golden.mfu.softmax import softmax
from concord.net.arithmetic.integer import IntegerProduct
from concord.net.layers.layer import Layer, Trace
from concord.spec.isa.operations import Operation
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.softmax import MOST_ELEMENTS


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Add(Layer):
    """The sum of two tensors, rounded.

    Attributes:
        name:       Name of the layer, unique in its model.
        inputs:     Number of elements of each tensor.
        activation: Activation function of the result.
    """

    name: str
    inputs: int
    activation: Activation = Activation.NONE

    title = "sum"
    keeps_shape = True
    operation: ClassVar[Operation] = Operation.VV_ADD

    @property
    def takes(self) -> tuple[int, int]:
        return self.inputs, self.inputs

    @property
    def outputs(self) -> int:
        return self.inputs

    def run(self, x, lengths, sums=IntegerProduct.totals):
        return Trace(outputs=activate(self.activation, compute(self.operation, *x)))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Multiply(Add):
    """The product of two tensors, element by element, rounded. Attributes are those of `Add`."""

    title = "product of tensors"
    operation = Operation.VV_MUL


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class GatedChannels(Layer):
    """The product of an image and a vector that has a number for each channel, rounded.

    Attributes:
        name:       Name of the layer, unique in its model.
        image:      Channels, rows and columns of the image, which enters first.
        activation: Activation function of the result.
    """

    name: str
    image: tuple[int, int, int]
    activation: Activation = Activation.NONE

    title = "product with a number for each channel"

    @property
    def inputs(self) -> int:
        """Number of elements of the image."""
        return prod(self.image)

    @property
    def takes(self) -> tuple[int, int]:
        return self.inputs, self.image[0]

    @property
    def outputs(self) -> int:
        return self.inputs

    def run(self, x, lengths, sums=IntegerProduct.totals):
        image = x[0].reshape(len(x[0]), self.image[0], -1)
        gates = np.broadcast_to(x[1][..., None], image.shape)
        made = activate(self.activation, compute(Operation.VV_MUL, image, gates))
        return Trace(outputs=made.reshape(len(made), -1))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Concat(Layer):
    """Concatenates tensors.

    Attributes:
        name:  Name of the layer, unique in its model.
        sizes: Number of elements of each tensor.
    """

    name: str
    sizes: tuple[int, ...]

    title = "concatenation"

    @property
    def takes(self) -> tuple[int, ...]:
        return self.sizes

    @property
    def outputs(self) -> int:
        return sum(self.sizes)

    def run(self, x, lengths, sums=IntegerProduct.totals):
        return Trace(outputs=np.concatenate(x, axis=1))



@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SequenceConcat(Concat):
    """Concatenates the vectors of sequences at each time step. Its result is the vector of each sample's last step."""

    title = "concatenation of sequences"
    sequence = True

    def run(self, x, lengths, sums=IntegerProduct.totals):
        return self._joined(x, lengths)

    def _joined(self, x, lengths):
        hidden = np.concatenate(x, axis=2)
        last = np.full(len(hidden), hidden.shape[1]) if lengths is None else np.asarray(lengths)
        return Trace(outputs=hidden[np.arange(len(hidden)), last - 1], hidden=hidden)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Softmax(Layer):
    """The softmax of the layer before it: exp(x_i) / sum of exp(x_j), which golden defines to the bit.

    Attributes:
        name:   Name of the layer, unique in its model.
        inputs: Number of elements.
    """

    name: str
    inputs: int

    title = "softmax"
    ends = True

    def __post_init__(self):
        if not 1 <= self.inputs <= MOST_ELEMENTS:
            raise ValueError(f"layer {self.name!r}: a softmax has 1 to {MOST_ELEMENTS} elements, not {self.inputs}")

    @property
    def outputs(self) -> int:
        return self.inputs

    def run(self, x, lengths, sums=IntegerProduct.totals):
        return Trace(outputs=softmax(x[0]))



def with_softmax(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """The layers of a model with the softmax of the result at the end."""
    name, taken = "softmax", {layer.name for layer in layers}
    while name in taken:
        name += "_"
    return *layers, Softmax(name=name, inputs=layers[-1].outputs)
