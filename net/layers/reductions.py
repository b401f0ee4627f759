"""Layers that see all elements of a vector at once; each of their operations rounds once."""

from dataclasses import dataclass

import numpy as np
from concord.golden.lib import float16
from concord.golden.lib.float16 import to_bits
from concord.golden.mfu.multifunction import activate
from concord.golden.mfu.reduction import running
from concord.net.arithmetic.integer import IntegerProduct
from concord.net.layers.layer import Layer, Trace
from concord.spec.isa.operations import Operation
from concord.spec.numbers.activation import Activation

LARGEST = float(np.finfo(np.float16).max)  #: Largest number of binary16.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class VectorSoftmax(Layer):
    """exp(x - largest) * (1 / sum), inside a network; `joins.Softmax` stands at its end.

    Attributes:
        name:   Name of the layer, unique in its model.
        inputs: Number of elements of the vector, or of the image.
        pixels: Number of pixels of an image, of each of which it sees the channels; 1 for a vector.
    """

    name: str
    inputs: int
    pixels: int = 1

    title = "softmax inside a network"
    keeps_shape = True

    @property
    def outputs(self) -> int:
        return self.inputs

    def run(self, x, lengths, sums=IntegerProduct.totals):
        x = _vectors(x[0], self.pixels)
        powers = activate(Activation.EXP, float16.sub(x, spread(Operation.V_LARGEST, x)))
        factor = activate(Activation.RECIPROCAL, spread(Operation.V_SUM, powers))
        return Trace(outputs=_elements(float16.mul(powers, factor)))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class VectorNorm(Layer):
    """d * weight * (root / sqrt(sum of d * share * d + floor)) + bias, where d = x - mean, or d = x.

    `share` is a power of two of about 1 / channels, so that the sum is about the mean square of d and overflows only
    where d deviates by some 250; root is sqrt(channels * share) and floor = epsilon * root**2.

    Attributes:
        name:    Name of the layer, unique in its model.
        weight:  uint16[channels], binary16 patterns.
        bias:    uint16[channels], binary16 patterns.
        centred: Whether the mean is subtracted.
        epsilon: What is added to the mean square.
        pixels:  Number of pixels of an image, of each of which it sees the channels; 1 for a vector.
    """

    name: str
    weight: np.ndarray
    bias: np.ndarray
    centred: bool
    epsilon: float
    pixels: int = 1

    title = "normalisation"
    keeps_shape = True

    def __post_init__(self):
        if not np.isfinite(self.epsilon) or self.epsilon <= 0:
            raise ValueError(f"layer {self.name!r}, epsilon: a number above 0 is needed, not {self.epsilon}; export "
                             "the model again")
        if self.weight.shape != self.bias.shape:
            raise ValueError(f"layer {self.name!r}: {self.weight.size} weights and {self.bias.size} biases; as many of "
                             "each are needed, export the model again")

    @property
    def widest(self) -> float:
        """The root mean square of d from which on the sum of squares overflows."""
        return (LARGEST / (self.weight.size * self.numbers["share"])) ** 0.5

    @property
    def inputs(self) -> int:
        """Number of elements of the vector, or of the image."""
        return self.weight.size * self.pixels

    @property
    def outputs(self) -> int:
        return self.inputs

    @property
    def numbers(self) -> dict[str, float]:
        """The constants of the machine before they are rounded to binary16."""
        count = self.weight.size
        share = 2.0 ** -(count - 1).bit_length()
        return {"mean": -1 / count, "share": share, "floor": self.epsilon * count * share,
                "root": (count * share) ** 0.5}

    def run(self, x, lengths, sums=IntegerProduct.totals):
        mean, share, floor, root = (to_bits(np.full((1, 1), number)) for number in self.numbers.values())
        d = _vectors(x[0], self.pixels)
        if self.centred:
            d = float16.add(d, float16.mul(spread(Operation.V_SUM, d), mean))
        total = spread(Operation.V_SUM, float16.mul(float16.mul(d, share), d))
        factor = float16.mul(activate(Activation.RSQRT, float16.add(total, floor)), root)
        return Trace(outputs=_elements(float16.add(float16.mul(float16.mul(d, self.weight), factor), self.bias)))


def _vectors(x: np.ndarray, pixels: int) -> np.ndarray:
    """The vectors uint16[samples, pixels, channels] of samples whose elements are channels, rows and columns."""
    return x.reshape(len(x), -1, pixels).swapaxes(1, 2)


def _elements(vectors: np.ndarray) -> np.ndarray:
    return vectors.swapaxes(1, 2).reshape(len(vectors), -1)


def spread(operation: Operation, x: np.ndarray) -> np.ndarray:
    """A reduction of the elements uint16[..., elements] as uint16[..., 1]."""
    return running(operation, x[..., None, :])[0][..., 0, :1]
