"""Products of images in one form: a window of weights for each output, whatever layer it comes from.

A dense layer on an image is a convolution whose window is the whole image.
"""

from dataclasses import dataclass, replace

import numpy as np
from concord.compiler.graph.nodes import PER_CHANNEL, TensorCodes, Value, entered
from concord.net.arithmetic.native_vectors import spread
from concord.net.arithmetic.windows import Window
from concord.net.layers.convolution import Along, BlockConv, Conv, seen
from concord.net.layers.dense import BlockDense, Dense
from concord.net.layers.layer import Layer
from concord.net.layers.pooling import Average, BlockAverage

#: Classes of layers that multiply.
PRODUCTS = (Dense, BlockDense, Conv, BlockConv, Average, BlockAverage)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Kernel:
    """The weights of a product.

    Attributes:
        window:    Window that moves over the image.
        mantissas: Integers [outputs, rows, columns, lanes] of a window's pixels, by the lanes of a pixel; zero for
            channels of other groups.
        exponents: int8[outputs, rows, columns, native vectors], or None in integer mode.
        codes:     How the codes of the image are made.
        apart:     Whether outputs see some channels only, as those of groups do.
        real:      float64, what replaces the mantissas in full precision; None for the mantissas themselves.
    """

    window: Window
    mantissas: np.ndarray
    exponents: np.ndarray | None
    codes: TensorCodes
    apart: bool = False
    real: np.ndarray | None = None

    def matrix(self, block: int, outputs: slice, vectors: slice) -> tuple[np.ndarray, np.ndarray | None]:
        """Rows of some outputs, whose columns are some native vectors of each pixel of the window, in row order.

        Returns:
            Integers [outputs, columns * block], in full precision float64; and int8[outputs, columns], exponents or
            None.
        """
        rows = (self.mantissas if self.real is None else self.real)[outputs]
        whole = np.zeros((*rows.shape[:3], -(-rows.shape[3] // block) * block), rows.dtype)
        whole[..., : rows.shape[3]] = rows
        mantissas = whole.reshape(*rows.shape[:3], -1, block)[..., vectors, :].reshape(len(rows), -1)
        if self.exponents is None:
            return mantissas, None
        return mantissas, self.exponents[outputs][..., vectors].reshape(len(rows), -1)

    def vectors_seen(self, block: int, outputs: slice) -> tuple[int, int]:
        """The first native vector of a pixel that has weights in some outputs, and the one after the last."""
        if not self.apart:
            return 0, -(-self.mantissas.shape[3] // block)
        lanes = np.flatnonzero(self.mantissas[outputs].any((0, 1, 2)))
        return (int(lanes[0]) // block, int(lanes[-1]) // block + 1) if len(lanes) else (0, 1)


def alone(layer: Layer, source: Value) -> bool:
    """Whether each channel of the result sees one channel of the source, so that it stays in its lane."""
    return isinstance(layer, Conv | BlockConv) and layer.groups == layer.channels == source.shape[0]


def kernel_of(layer: Layer, source: Value, made: Value, content: Layer) -> Kernel:
    """The weights of a layer that multiplies.

    Args:
        source:  Tensor that enters.
        made:    Tensor that the layer makes; an output is a lane of it.
        content: Layer whose numbers fill the memories: `layer`, or one of real numbers.
    """
    kernel = _kernel(layer, source, made)
    if content is layer:
        return kernel
    real = _kernel(content, source, made)
    codes = replace(kernel.codes, real=real.codes.border, clip=content.real.get("clip"))
    return replace(kernel, codes=codes, real=real.mantissas if real.mantissas.dtype == np.float64 else None)


def _kernel(layer: Layer, source: Value, made: Value) -> Kernel:
    dense = isinstance(layer, Dense | BlockDense)
    window = Window(size=source.shape[1:]) if dense else layer.window
    integer = isinstance(layer, Dense | Conv)
    rows = layer.weights if integer else layer.mantissas
    rows = rows.reshape(len(rows), *source.shape) if dense else _every_channel(rows, source.shape[0], layer.groups)
    lanes, apart = made.spread(spread(np.moveaxis(rows, 1, -1), source.places)), layer.groups > 1
    if integer:
        codes = _integer_codes(layer, source)
        return Kernel(window=window, mantissas=lanes, exponents=None, codes=codes, apart=apart)
    pixels = (1, 1) if not dense and layer.along is Along.PATCH else window.size
    border = np.zeros(source.shape[0], np.uint16)
    exponents = made.spread(layer.exponents.reshape(len(rows), *pixels, -1))
    return Kernel(window=window, mantissas=lanes, exponents=exponents, apart=apart,
                  codes=TensorCodes(integer=False, border=border if any(window.padding) else None))


def _every_channel(weights: np.ndarray, channels: int, groups: int) -> np.ndarray:
    """Weights [outputs, channels / groups, rows, columns] for all channels; zero for those of other groups."""
    if groups == 1:
        return weights
    rows = np.zeros((len(weights), channels, *weights.shape[2:]), weights.dtype)
    np.put_along_axis(rows, seen(len(weights), channels, groups)[..., None, None], weights, 1)
    return rows


def _integer_codes(layer: Dense | Conv, source: Value) -> TensorCodes:
    """The codes of an integer layer's input, with one scale for each channel."""
    channels = source.shape[0]
    scale, offset = (None if v is None else v.reshape(channels, -1)[:, 0]
                     for v in (layer.quant_scale, layer.quant_offset))
    border = None
    if isinstance(layer, Conv) and any(layer.padding):
        border = entered(layer.border, scale, offset, channels)
    return TensorCodes(integer=True, unsigned=layer.unsigned, scale=scale, offset=offset, border=border)


def problems(layer: Layer, source: Value, block: int, patched: bool) -> list[str]:
    """Sentences on why the blocks or scales of a layer do not fit how the machine stores its input.

    Args:
        patched: Whether the input is sent as patches.
    """
    found = []
    if isinstance(layer, Dense):
        for values in (layer.quant_scale, layer.quant_offset):
            if values is not None and (np.ptp(values.reshape(source.shape[0], -1).astype(int), 1)).any():
                return ["its input has another scale for each pixel: give all pixels of a channel one scale"]
    elif isinstance(layer, BlockConv) and layer.along is Along.PATCH:
        if not patched:
            found.append("its blocks lie along patches, which only the sender of the network's input can make, and for "
                         "layers with one window: quantise it along channels")
    elif isinstance(layer, BlockConv | BlockDense):
        places = layer.places if layer.places is not None else np.arange(_places_of(layer, source), dtype=np.int32)
        wanted = source.places
        if isinstance(layer, BlockDense) and source.pixels > 1:
            apart = -(-source.lanes // block) * block
            wanted = (source.places[:, None] + np.arange(source.pixels) * apart).ravel()
        if not np.array_equal(places, wanted):
            found.append("its blocks do not follow the pixels of its input: quantise the network again, so that each "
                         "pixel, and each part of a concatenation, begins a native vector")
    return found


def _places_of(layer: BlockConv | BlockDense, source: Value) -> int:
    return source.shape[0] if isinstance(layer, BlockConv) else source.elements


def patched(kernel: Kernel, patch: tuple[bool, bool]) -> Kernel:
    """The kernel for an image whose pixels hold neighbouring pixels: all rows, or columns, of each window.

    The lanes of a pixel are ordered by row, column and channel of the patch.
    """
    window, (_, down, across, _) = kernel.window, kernel.mantissas.shape
    inner = tuple(size if together else 1 for size, together in zip((down, across), patch, strict=True))
    outer = down // inner[0], across // inner[1]
    above, below, left, right = window.padding
    kept = Window(
        size=outer,
        stride=tuple(1 if together else step for step, together in zip(window.stride, patch, strict=True)),
        dilation=tuple(1 if together else step for step, together in zip(window.dilation, patch, strict=True)),
        padding=(*((0, 0) if patch[0] else (above, below)), *((0, 0) if patch[1] else (left, right))))
    count = inner[0] * inner[1]
    wide = {name: None if getattr(kernel.codes, name) is None else np.tile(getattr(kernel.codes, name), count)
            for name in PER_CHANNEL}
    if not any(kept.padding):
        wide |= {"border": None, "real": None}
    mantissas, real = (None if values is None else _side_by_side(values, outer, inner)
                       for values in (kernel.mantissas, kernel.real))
    return replace(kernel, window=kept, mantissas=mantissas, real=real, codes=replace(kernel.codes, **wide))


def _side_by_side(values: np.ndarray, outer: tuple[int, int], inner: tuple[int, int]) -> np.ndarray:
    """Weights [outputs, rows, columns, lanes] of a window of `outer` pixels, each of which holds `inner` pixels."""
    pixels = values.reshape(len(values), outer[0], inner[0], outer[1], inner[1], values.shape[-1])
    return pixels.transpose(0, 1, 3, 2, 4, 5).reshape(len(values), *outer, -1)
