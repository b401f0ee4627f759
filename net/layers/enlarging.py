"""Images with more pixels: each pixel becomes a rectangle of them."""

from dataclasses import dataclass
from math import prod

from concord.golden.mfu.multifunction import activate
from concord.net.arithmetic.integer import IntegerProduct
from concord.net.layers import checks
from concord.net.layers.layer import Layer, Trace
from concord.net.ops.reshape import Enlarging
from concord.spec.numbers.activation import Activation


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Enlarge(Layer):
    """Nearest upsampling by whole factors, or depth to space, see `Enlarging`.

    Attributes:
        name:       Name of the layer, unique in its model.
        shape:      Channels, rows and columns of the input.
        factor:     Rows and columns that a pixel becomes.
        shuffled:   Whether a pixel holds the channels of all pixels that it becomes; otherwise it is repeated.
        activation: Activation function of the result.
    """

    name: str
    shape: tuple[int, int, int]
    factor: tuple[int, int]
    shuffled: bool = False
    activation: Activation = Activation.NONE

    title = "enlargement"

    def __post_init__(self):
        checks.image_shape(self)
        try:
            _ = self.made
        except ValueError as error:
            raise ValueError(f"layer {self.name!r}: {error}") from error

    @property
    def operator(self) -> Enlarging:
        """The operator that does the same with real numbers."""
        return Enlarging(factor=tuple(self.factor), shuffled=self.shuffled)

    @property
    def made(self) -> tuple[int, int, int]:
        """Channels, rows and columns of the output."""
        return self.operator.shape(self.shape)

    @property
    def inputs(self) -> int:
        return prod(self.shape)

    @property
    def outputs(self) -> int:
        return prod(self.made)

    @property
    def entering(self) -> tuple[int, int, int]:
        return self.shape

    def run(self, x, lengths, sums=IntegerProduct.totals):
        y = self.operator.real(x[0].reshape(len(x[0]), *self.shape), lengths)
        return Trace(outputs=activate(self.activation, y).reshape(len(y), -1))
