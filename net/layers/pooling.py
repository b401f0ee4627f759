"""Averages and maxima of windows.

An average is an exact sum of quantised pixels, channel by channel, rounded once before it is scaled.

An average is a convolution in which each channel is multiplied by ones. The machine multiplies each pixel of a window
by an identity tile.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np
from concord.golden.lib import float16
from concord.golden.mfu.multifunction import activate
from concord.net.arithmetic.integer import IntegerProduct
from concord.net.layers import checks
from concord.net.layers.convolution import Along, BlockConv, Conv, Windows
from concord.net.layers.layer import Layer, Trace
from concord.net.layers.rows import BlockRows, IntegerRows
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Average(Conv):
    """Integer average: y = a * scale + offset, a = binary16((start + sum of the window's codes) * 2**-p).

    Its weights are 1, int16[channels, 1, rows, columns], and `scale` holds the step of the codes over their number.
    `Conv` describes the rest.
    """

    title = "average, integer"
    multiplications = 0  # a product with 1 is none of the network's

    def __post_init__(self):
        IntegerRows.__post_init__(self)
        _check(self, self.weights, 1)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class QuantizedResult(Average):
    """The result of a product, quantised before anything else is computed with it: y = activation(q * S + T).

    It is the average of single pixels; the machine reads their codes as numbers, and multiplies nothing with a tile.

    Source: summary of the fourth document, whose second precision is that of the product's result.
    """

    title = "quantised result, integer"

    def __post_init__(self):
        Average.__post_init__(self)
        _check_single(self)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockAverage(BlockConv):
    """Block floating point average: y = binary16(sum of the window's quantised numbers * identity) * scale.

    Its weights are all `identity(weights_format)`, which is 1 unless the format ends below. `BlockConv` describes the
    rest; blocks always lie along channels.

    Attributes:
        scale: uint16[channels], binary16(1 / (identity * pixels of a window)).
        bias:  None, since nothing is added.
    """

    scale: np.ndarray
    bias: None = None

    title = "average, block floating point"
    multiplications = 0

    def __post_init__(self):
        BlockRows.__post_init__(self)
        mantissa, exponent = identity(self.weights_format)
        _check(self, self.mantissas, mantissa)
        own = self.exponents[np.arange(self.shape[0]), ..., self.channel_places // self.block]
        if self.along is not Along.CHANNELS or (own != exponent).any():
            raise ValueError(f"layer {self.name!r}, exponents: an average has blocks along channels, and the exponent "
                             f"{exponent}; export the model again")

    def check_finish(self, rows):
        checks.array(self, "scale", np.uint16, (rows,))

    def finished(self, y):
        return float16.mul(y, self.scale)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockQuantizedResult(BlockAverage):
    """The result of a product in block floating point, quantised before anything else is computed with it.

    It is the average of single pixels with weights of 1, see `QuantizedResult`.
    """

    title = "quantised result, block floating point"

    def __post_init__(self):
        BlockAverage.__post_init__(self)
        _check_single(self)
        if (self.scale != ONE).any():
            raise ValueError(f"layer {self.name!r}: its weights are not 1, because the exponents of their format end "
                             "below; choose a format with larger exponents")


def _check_single(layer: Windows):
    """Refuse a quantised result that is not that of each pixel."""
    if layer.window.size != (1, 1) or any(layer.window.padding) or layer.window.stride != (1, 1):
        raise ValueError(f"layer {layer.name!r}: a quantised result has windows of one pixel, at each pixel; export "
                         "the model again")


def identity(fmt: Format) -> tuple[int, int]:
    """Mantissa and exponent of 1 in a format, or of the largest power of two where its exponents end below.

    Raises:
        ValueError: the smallest exponent of the format is too large for 1.
    """
    exponent = min(max(1, fmt.e_min), fmt.e_max)
    shift = fmt.bits - 1 - max(exponent, 1)
    if shift < 0:
        raise ValueError(f"mantissas of {fmt.bits} bits with exponents from {fmt.e_min} hold no 1, which averages "
                         "need; choose a format with smaller exponents")
    return 1 << shift, exponent


def _check(layer: Conv | BlockConv, weights: np.ndarray, one: int):
    """Refuse a layer that does not multiply each channel by ones."""
    if not layer.groups == layer.shape[0] == len(weights) or (weights != one).any():
        raise ValueError(f"layer {layer.name!r}: an average multiplies each of its {layer.shape[0]} channels by ones "
                         "in a group of its own; export the model again")


#: 1 in binary16.
ONE = np.uint16(0x3C00)
#: Minus infinity, so that a maximum ignores the padding.
LOWEST = np.uint16(0xFC00)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MaxPool(Windows, Layer):
    """Gives the largest value of each window.

    Attributes:
        name:       Name of the layer, unique in its model.
        shape:      Channels, rows and columns of the input.
        size:       Rows and columns of a window.
        stride:     Distance between neighbouring positions of the window, down and across.
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
