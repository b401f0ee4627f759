"""Pooling, which reduces each window of a channel to one value."""

from dataclasses import dataclass
from enum import StrEnum
from functools import reduce

import numpy as np
from concord.golden.lib import float16
from concord.golden.mfu import activation
from concord.model.arithmetic import windows
from concord.model.arithmetic.integer import IntegerProduct
from concord.model.layers import checks
from concord.model.layers.layer import Layer, Trace
from concord.model.layers.windowed import Windows
from concord.spec.activation import Activation

#: Minus infinity, so that a maximum ignores the padding.
_LOWEST = np.uint16(0xFC00)


class Reduction(StrEnum):
    """How a window is reduced."""

    MAX = "max"
    AVERAGE = "average"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pool(Windows, Layer):
    """Gives the largest value of each window, or the sum in row order times binary16(1 / elements), each step rounded.

    Attributes:
        name:       Name of the layer, unique in its model.
        reduction:  How a window is reduced.
        shape:      Channels, rows and columns of the input.
        size:       Rows and columns of a window.
        stride:     Distance between neighbouring windows.
        padding:    Number of rows and columns of padding, which a maximum ignores; 0 for averages.
        activation: Activation function of the result.
    """

    name: str
    reduction: Reduction
    shape: tuple[int, int, int]
    size: int
    stride: int
    padding: int = 0
    activation: Activation = Activation.NONE

    title = "pooling"

    def __post_init__(self):
        checks.image_shape(self)
        checks.windows(self, self.window)
        if self.padding and self.reduction is Reduction.AVERAGE:
            raise ValueError(f"layer {self.name!r}: averages take no padding; pad before, or use none")
        if 2 * self.padding > self.size:
            raise ValueError(f"layer {self.name!r}: padding {self.padding} is more than half of its windows of "
                             f"{self.size}")

    @property
    def window(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def channels(self) -> int:
        return self.shape[0]

    def run(self, x, lengths, sums=IntegerProduct.totals):
        seen = windows.windows(self.bordered(x[0], _LOWEST), self.window, self.stride)
        elements = list(np.moveaxis(seen.reshape(*seen.shape[:4], -1), -1, 0))
        if self.reduction is Reduction.MAX:
            y = reduce(float16.maximum, elements)
        else:
            y = float16.mul(reduce(float16.add, elements), windows.reciprocal(len(elements)))
        return Trace(outputs=activation.apply(self.activation, y).reshape(len(y), -1))
