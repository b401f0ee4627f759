"""Convolutions in block floating point."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from concord.golden.lib import float16
from concord.golden.mfu import activation
from concord.golden.mfu.activation import Activation
from concord.golden.mvm import quantizer
from concord.model import images, layer_checks
from concord.model.image_layers import Windows
from concord.spec.formats import Format

#: Exponent of no format is above it.
LARGEST = 16


class Along(StrEnum):
    """What lies in one block."""

    CHANNELS = "channels"  #: neighbouring channels of one pixel
    PATCH = "patch"  #: neighbouring elements of a patch: row by row, pixel by pixel, their channels together


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockConv(Windows):
    """Block floating point convolution: at each place what `BlockDense` does to the native vectors there.

    Along channels, a pixel is ceil(channels / block) native vectors, and a place meets those of all its pixels: an
    image is quantised once, whatever the windows. A row of a grouped convolution has zeros where it sees no channel.
    Along a patch, a place is ceil(rows * columns * channels / block) native vectors, quantised anew for each place.

    Attributes:
        name:           Unique in its model.
        weights_format: As in `BlockDense`, likewise `input_format`, `block`, `activation`, `ranges` and `real`.
        along:          What lies in one block.
        shape:          Channels, rows and columns of the input.
        stride:         Between neighbouring places.
        padding:        Rows and columns of +0 put around the input, before its quantiser.
        groups:         Neighbouring channels that only see each other; 1 along a patch.
        mantissas:      int16[outputs, channels / groups, rows, columns].
        exponents:      int8[outputs, rows, columns, ceil(channels / block)], E, of all channels of the image; along a
            patch int8[outputs, 1, 1, ceil(rows * columns * channels / block)].
        bias:           uint16[outputs].
    """

    name: str
    weights_format: Format
    input_format: Format
    block: int
    along: Along
    shape: tuple[int, int, int]
    stride: int
    padding: int
    groups: int
    mantissas: np.ndarray
    exponents: np.ndarray
    bias: np.ndarray
    activation: Activation = Activation.NONE
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    real: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self):
        shape = layer_checks.kernels(self, "mantissas")
        if self.along is Along.PATCH and self.groups > 1:
            raise ValueError(f"layer {self.name!r}: blocks along a patch hold all channels, but it has {self.groups} "
                             "groups; use blocks along channels")
        layer_checks.array(self, "mantissas", np.int16, shape, mantissas=self.weights_format)
        rows, columns, channels = native(self.shape[0], self.window, self.along)
        blocks = rows, columns, layer_checks.block_count(self, channels)
        layer_checks.array(self, "exponents", np.int8, (shape[0], *blocks), exponents=self.weights_format)
        layer_checks.array(self, "bias", np.uint16, (shape[0],))
        layer_checks.real(self)

    @property
    def window(self) -> tuple[int, int]:
        return self.mantissas.shape[2:]

    @property
    def channels(self) -> int:
        return len(self.mantissas)


def native(channels: int, window: tuple[int, int], along: Along) -> tuple[int, int, int]:
    """Rows, columns and channels of a place, as its blocks see it: a patch is one pixel of many channels."""
    rows, columns = window
    return (rows, columns, channels) if along is Along.CHANNELS else (1, 1, rows * columns * channels)


def seen(outputs: int, channels: int, groups: int) -> np.ndarray:
    """int64[outputs, channels / groups]: the channels that each row sees."""
    each = channels // groups
    return np.arange(outputs)[:, None] // (outputs // groups) * each + np.arange(each)


def run(layer: BlockConv, x: np.ndarray) -> np.ndarray:
    """uint16[samples, inputs] to uint16[samples, outputs]."""
    y = float16.add(product(layer, x), layer.bias[:, None, None])
    return activation.apply(layer.activation, y).reshape(len(x), -1)


def product(layer: BlockConv, x: np.ndarray) -> np.ndarray:
    """The exact sums, rounded once to binary16: uint16[samples, outputs, rows, columns]."""
    around = (0, 0), (0, 0), (layer.padding, layer.padding), (layer.padding, layer.padding)
    image = np.pad(x.reshape(len(x), *layer.shape), around)
    weights, stride = np.moveaxis(layer.mantissas, 1, -1), layer.stride
    if layer.along is Along.PATCH:
        image, stride = patches(image, layer.window, stride), 1
        weights = weights.reshape(len(weights), 1, 1, -1)
    channels = image.shape[1]
    mantissas, exponents = quantizer.quantize_block(
        quantizer.split(np.moveaxis(image, 1, -1), layer.block), layer.input_format)
    mantissas = mantissas.reshape(*exponents.shape[:-1], -1)[..., :channels]
    codes, lowest = _aligned(mantissas, np.repeat(exponents, layer.block, -1)[..., :channels])
    columns = seen(len(weights), channels, layer.groups)[:, None, None]
    rows, lowest_row = _aligned(weights, np.take_along_axis(np.repeat(layer.exponents, layer.block, -1), columns, -1))
    largest = int(np.abs(rows).sum((1, 2, 3)).max()) * int(np.abs(codes).max())
    total = images.convolve(np.moveaxis(rows, -1, 1), np.moveaxis(codes, -1, 1), stride, layer.groups, largest)
    places = layer.weights_format.bits - 1 + layer.input_format.bits - 1
    return float16.from_integer(total, places - lowest - lowest_row)


def patches(image: np.ndarray, window: tuple[int, int], stride: int) -> np.ndarray:
    """Each place of [samples, channels, rows, columns] as one pixel, its patch in the order of `Along.PATCH`."""
    found = images.windows(image, window, stride, 0, 0).transpose(0, 4, 5, 1, 2, 3)
    return found.reshape(len(image), -1, *found.shape[4:])


def _aligned(mantissas: np.ndarray, exponents: np.ndarray) -> tuple[np.ndarray, int]:
    """Mantissas moved left to the smallest exponent of all that are not 0, and that exponent."""
    mantissas, exponents = mantissas.astype(np.int64), exponents.astype(np.int64)
    lowest = int(exponents.min(initial=LARGEST, where=mantissas != 0))
    return mantissas << np.maximum(exponents - lowest, 0), lowest
