"""Image layers in golden arithmetic."""

from functools import reduce

import numpy as np
from concord.golden.lib import float16
from concord.model.image_layers import Pool, Reduction

#: Below what every pattern that a maximum may see.
LOWEST = np.uint16(0xFC00)
FLOAT32_EXACT = 1 << 24
FLOAT64_EXACT = 1 << 53


def windows(x: np.ndarray, size: tuple[int, int], stride: int, padding: int, border) -> np.ndarray:
    """What each place sees of x[samples, channels, rows, columns]: a view [samples, channels, *places, *size]."""
    around = (0, 0), (0, 0), (padding, padding), (padding, padding)
    padded = np.pad(x, around, constant_values=border) if padding else x
    return np.lib.stride_tricks.sliding_window_view(padded, size, (2, 3))[:, :, ::stride, ::stride]


def convolve(weights: np.ndarray, codes: np.ndarray, stride: int, groups: int, largest: int) -> np.ndarray:
    """Exact sums int64[samples, outputs, *places], or Python integers where float64 would not be exact.

    Args:
        weights: int16[outputs, channels / groups, rows, columns].
        codes:   Integer[samples, channels, rows, columns], padding among them.
        largest: No sum of magnitudes is above it.
    """
    dtype = np.float32 if largest < FLOAT32_EXACT else np.float64 if largest < FLOAT64_EXACT else object
    outputs, _, *size = weights.shape
    seen = windows(codes.astype(dtype), tuple(size), stride, 0, 0)
    samples, channels, rows, columns = seen.shape[:4]
    parts = np.ascontiguousarray(seen.transpose(1, 4, 5, 0, 2, 3)).reshape(groups, -1, samples * rows * columns)
    sums = weights.reshape(groups, outputs // groups, -1).astype(dtype) @ parts
    sums = sums.reshape(outputs, samples, rows, columns).transpose(1, 0, 2, 3)
    return sums if dtype is object else sums.astype(np.int64)


def pool(layer: Pool, x: np.ndarray) -> np.ndarray:
    """uint16[samples, inputs] to uint16[samples, outputs], before the activation."""
    images = x.reshape(len(x), *layer.shape)
    seen = windows(images, layer.window, layer.stride, layer.padding, LOWEST).reshape(len(x), *layer.made, -1)
    elements = list(np.moveaxis(seen, -1, 0))
    if layer.reduction is Reduction.MAX:
        return reduce(float16.maximum, elements).reshape(len(x), -1)
    return float16.mul(reduce(float16.add, elements), reciprocal(len(elements))).reshape(len(x), -1)


def reciprocal(count: int) -> np.uint16:
    """binary16(1 / count)."""
    return np.float16(1 / count).view(np.uint16)

