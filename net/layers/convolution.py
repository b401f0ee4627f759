"""Convolutions, in which each row of weights is multiplied by the input at many positions."""

from dataclasses import dataclass
from enum import StrEnum
from math import prod

import numpy as np
from concord.golden.lib import float16
from concord.golden.mvm import quantizer
from concord.net.arithmetic import native_vectors, windows
from concord.net.arithmetic.native_vectors import adjacent, spread
from concord.net.arithmetic.windows import Window
from concord.net.layers import checks
from concord.net.layers.rows import BlockRows, IntegerRows


class Windows:
    """Geometry of windows, for a layer with `shape`, `size`, `stride`, `padding` and `dilation`, see `Window`."""

    __slots__ = ()

    @property
    def channels(self) -> int:
        """Channels of the output."""
        raise NotImplementedError

    @property
    def window(self) -> Window:
        """The window that moves over the image."""
        return Window(size=self.size, stride=self.stride, dilation=self.dilation, padding=self.padding)

    @property
    def made(self) -> tuple[int, int, int]:
        """Channels, rows and columns of the output."""
        return self.channels, *self.window.counts(*self.shape[1:])

    @property
    def inputs(self) -> int:
        return prod(self.shape)

    @property
    def outputs(self) -> int:
        return prod(self.made)

    @property
    def entering(self) -> tuple[int, int, int]:
        return self.shape

    def bordered(self, x: np.ndarray, value) -> np.ndarray:
        """The images of [samples, inputs] with their padding: [samples, channels, rows, columns]."""
        return self.window.bordered(x.reshape(len(x), *self.shape), value)

    def unbordered(self, x: np.ndarray) -> np.ndarray:
        """Images with padding, without it: [samples, inputs]."""
        return self.window.inside(x).reshape(len(x), -1)


class Kernels(Windows):
    """Geometry of a convolution, for a layer that has the field `groups` as well.

    Its weights are [outputs, channels / groups, rows, columns].
    """

    __slots__ = ()

    def per_channel(self, values):
        return values[:, None, None]

    def at_positions(self, x):
        return self.window.patches(x, self.groups)

    def flattened(self, y):
        positions = prod(self.made[1:])
        return y.reshape(-1, positions, self.channels).swapaxes(1, 2).reshape(-1, self.outputs)

    def weights_shape(self, name: str) -> tuple[int, int, int, int]:
        return checks.kernels(self, name)

    @property
    def channels_in(self) -> int:
        return self.shape[0]


class Along(StrEnum):
    """Direction of a block."""

    CHANNELS = "channels"  #: a block holds neighbouring channels of one pixel
    PATCH = "patch"  #: a block holds neighbouring elements of a patch, ordered by row, pixel and channel


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Conv(Kernels, IntegerRows):
    """Integer convolution, which applies a `Dense` layer to the patch of each position.

    `IntegerRows` describes the rest.

    Attributes:
        shape:    Channels, rows and columns of the input.
        stride:   Distance between neighbouring positions, down and across.
        padding:  Rows of padding above and below the input, and columns left and right of it, before its quantiser.
        dilation: Distance between neighbouring pixels of a window, down and across.
        groups:   Number of groups of neighbouring channels, each with its own outputs.
        border:   Binary16 pattern of the padding: zero in the unit of the input.
        weights:  int16[outputs, channels / groups, rows, columns].
    """

    shape: tuple[int, int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    border: int = 0

    title = "convolution, integer"

    @property
    def size(self) -> tuple[int, int]:
        return self.weights.shape[2:]

    @property
    def channels(self) -> int:
        return len(self.weights)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockConv(Kernels, BlockRows):
    """Block floating point convolution, which applies `BlockDense` to the native vectors of each position.

    Along channels, a pixel is ceil(channels / block) native vectors, and a position reads those of all its pixels, so
    an image is quantised once. A row of a grouped convolution has zero weights for channels of other groups. Along a
    patch, a position is one vector of rows * columns * channels elements, which is quantised anew for each position.

    Attributes:
        along:     Direction of a block.
        shape:     Channels, rows and columns of the input.
        stride:    Distance between neighbouring positions, down and across.
        padding:   Rows of +0 above and below the input, and columns left and right of it, before its quantiser.
        dilation:  Distance between neighbouring pixels of a window, down and across.
        groups:    Number of groups of neighbouring channels, each with its own outputs; 1 along a patch.
        mantissas: int16[outputs, channels / groups, rows, columns].
        exponents: int8[outputs, rows, columns, blocks of a pixel], E, of all channels of the image; along a patch
            int8[outputs, 1, 1, ceil(rows * columns * channels / block)].
        places:    int32[channels], see `BlockRows`; None along a patch.
    """

    along: Along
    shape: tuple[int, int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    title = "convolution, block floating point"

    def weights_shape(self, name):
        shape = Kernels.weights_shape(self, name)
        if self.along is Along.PATCH and self.groups > 1:
            raise ValueError(f"layer {self.name!r}: blocks along a patch hold all channels, but it has {self.groups} "
                             "groups; use blocks along channels")
        if self.along is Along.PATCH and self.places is not None:
            raise ValueError(f"layer {self.name!r}: channels have places of their own, which a patch has not; use "
                             "blocks along channels")
        return shape

    def exponents_shape(self, weights):
        rows, columns, channels = native(self.shape[0], self.size, self.along)
        return weights[0], rows, columns, checks.block_count(self, channels, self.places)

    @property
    def size(self) -> tuple[int, int]:
        return self.mantissas.shape[2:]

    @property
    def channels(self) -> int:
        return len(self.mantissas)

    @property
    def channel_places(self) -> np.ndarray:
        """int32[channels], the place of each channel of a pixel in its native vectors."""
        return adjacent(self.shape[0]) if self.places is None else self.places

    def multiplied(self, x):
        if self.along is Along.CHANNELS:
            return self._along_channels(x)
        # The elements of a patch are ordered by pixel here, and by channel in Window.patches.
        seen = self.window.seen(x).transpose(0, 2, 3, 4, 5, 1)
        columns = seen.reshape(len(x) * seen.shape[1] * seen.shape[2], -1)
        mantissas = np.moveaxis(self.mantissas, 1, -1).reshape(self.channels, -1)
        return self.row_product(columns, mantissas, self.exponents[:, 0, 0])

    def _along_channels(self, x: np.ndarray) -> np.ndarray:
        """Product along channels: all blocks are brought to one exponent, so a convolution of integers is exact."""
        channels = self.shape[0]
        at = self.channel_places
        mantissas, exponents = quantizer.quantize_block(
            quantizer.split(spread(np.moveaxis(x, 1, -1), self.places), self.block), self.input_format)
        mantissas = mantissas.reshape(*exponents.shape[:-1], -1)[..., at]
        codes, lowest = native_vectors.aligned(mantissas, exponents[..., at // self.block])
        columns = at[seen(self.channels, channels, self.groups)][:, None, None]
        own = np.take_along_axis(self.exponents, columns // self.block, -1)
        rows, lowest_row = native_vectors.aligned(np.moveaxis(self.mantissas, 1, -1), own)
        largest = int(np.abs(rows).sum((1, 2, 3)).max()) * int(np.abs(codes).max())
        total = windows.convolve(
            np.moveaxis(rows, -1, 1), np.moveaxis(codes, -1, 1), self.window, self.groups, largest)
        units = native_vectors.fraction_bits(self.weights_format, self.input_format)
        return float16.from_integer(total, units - lowest - lowest_row)


def native(channels: int, window: tuple[int, int], along: Along) -> tuple[int, int, int]:
    """Rows, columns and channels of a position in blocks; along a patch, it is one pixel of many channels."""
    rows, columns = window
    return (rows, columns, channels) if along is Along.CHANNELS else (1, 1, rows * columns * channels)


def seen(outputs: int, channels: int, groups: int) -> np.ndarray:
    """int64[outputs, channels / groups], the channels that each row reads."""
    each = channels // groups
    return np.arange(outputs)[:, None] // (outputs // groups) * each + np.arange(each)
