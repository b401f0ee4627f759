"""Layers between images and sequences: they put the same numbers into another order."""

from dataclasses import dataclass
from math import prod

from concord.net.arithmetic.integer import IntegerProduct
from concord.net.arithmetic.windows import TimeAxis, steps_of_image
from concord.net.layers import checks
from concord.net.layers.layer import Layer, Trace


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ImageToSequence(Layer):
    """Reads an image as a sequence, of which each row or column is one time step.

    The vector of a time step holds its pixels one after the other, each with all its channels. An image of one row is
    what a convolution over time gives; each of its columns is one pixel.

    Attributes:
        name:  Name of the layer, unique in its model.
        shape: Channels, rows and columns of the image.
        time:  Whether a row or a column is a time step.
    """

    name: str
    shape: tuple[int, int, int]
    time: TimeAxis = TimeAxis.COLUMNS

    title = "image as a sequence"
    makes_sequence = True

    def __post_init__(self):
        checks.image_shape(self)

    @property
    def inputs(self) -> int:
        return prod(self.shape)

    @property
    def entering(self) -> tuple[int, int, int]:
        return self.shape

    @property
    def outputs(self) -> int:
        return self.inputs // self.steps

    @property
    def steps(self) -> int:
        return self.shape[1 if self.time is TimeAxis.ROWS else 2]

    def run(self, x, lengths, sums=IntegerProduct.totals):
        hidden = steps_of_image(x[0].reshape(-1, *self.shape), self.time)
        return Trace(outputs=hidden[:, -1], hidden=hidden)



@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SequenceToImage(Layer):
    """Reads a sequence as an image of one row, whose columns are the time steps and whose channels the elements.

    Attributes:
        name:   Name of the layer, unique in its model.
        inputs: Elements of the vector of one time step.
        steps:  Number of time steps, which every sequence has.
    """

    name: str
    inputs: int
    steps: int

    title = "sequence as an image"
    sequence = True
    makes_sequence = False

    def __post_init__(self):
        if min(self.inputs, self.steps) < 1:
            raise ValueError(f"layer {self.name!r}: elements and time steps are 1 or more, not {self.inputs} and "
                             f"{self.steps}")

    @property
    def made(self) -> tuple[int, int, int]:
        """Channels, rows and columns of the image."""
        return self.inputs, 1, self.steps

    @property
    def outputs(self) -> int:
        return self.inputs * self.steps

    def run(self, x, lengths, sums=IntegerProduct.totals):
        return Trace(outputs=x[0].swapaxes(1, 2).reshape(len(x[0]), -1))
