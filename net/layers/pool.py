"""Pooling, which gives the largest value of each window of a channel."""

from dataclasses import dataclass
from functools import reduce

import numpy as np
from concord.golden.lib import float16
from concord.golden.mfu.multifunction import activate
from concord.net.arithmetic.integer import IntegerProduct
from concord.net.layers import checks
from concord.net.layers.layer import Layer, Trace
from concord.net.layers.windowed import Windows
from concord.spec.numbers.activation import Activation

#: Minus infinity, so that a maximum ignores the padding.
LOWEST = np.uint16(0xFC00)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MaxPool(Windows, Layer):
    """Gives the largest value of each window.

    Attributes:
        name:       Name of the layer, unique in its model.
        shape:      Channels, rows and columns of the input.
        size:       Rows and columns of a window.
        stride:     Distance between neighbouring places of the window, down and across.
        padding:    Rows of padding above and below the input, and columns left and right of it; a maximum ignores them.
        dilation:   Distance between neighbouring pixels of a window, down and across.
        activation: Activation function of the result.
    """

    name: str
    shape: tuple[int, int, int]
    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    activation: Activation = Activation.NONE

    title = "maximum pooling"

    def __post_init__(self):
        checks.image_shape(self)
        if len(self.size) != 2:
            raise ValueError(f"layer {self.name!r}, size: 2 numbers from 1 are needed, not {list(self.size)}")
        checks.windows(self)
        inside = np.ones((1, 1, *self.shape[1:]), bool)
        if not self.window.seen(self.window.bordered(inside, False)).any((-2, -1)).all():
            raise ValueError(f"layer {self.name!r}: with padding {list(self.padding)}, a window of {self.size[0]} x "
                             f"{self.size[1]} holds nothing but padding; use less padding")

    @property
    def channels(self) -> int:
        return self.shape[0]

    def run(self, x, lengths, sums=IntegerProduct.totals):
        y = reduce(float16.maximum, self._elements(self.bordered(x[0], LOWEST)))
        return Trace(outputs=activate(self.activation, y).reshape(len(y), -1))

    def _elements(self, x: np.ndarray) -> np.ndarray:
        """The elements of all windows, one after the other: [elements, samples, channels, rows, columns]."""
        seen = self.window.seen(x)
        return np.moveaxis(seen.reshape(*seen.shape[:4], -1), -1, 0)
