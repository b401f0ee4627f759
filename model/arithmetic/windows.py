"""Windows of images, the inputs of each place of a convolution or pooling layer."""

import numpy as np
from concord.model.arithmetic.integer import exact_product, exact_type


def windows(x: np.ndarray, size: tuple[int, int], stride: int) -> np.ndarray:
    """The window of each place in x[samples, channels, rows, columns]: a view [samples, channels, *places, *size]."""
    return np.lib.stride_tricks.sliding_window_view(x, size, (2, 3))[:, :, ::stride, ::stride]


def patches(x: np.ndarray, size: tuple[int, int], stride: int, groups: int) -> np.ndarray:
    """The windows of x[samples, channels, rows, columns], each as one row for each group of channels.

    Returns:
        [groups, samples * places, columns]; the columns are ordered by channel, then by row.
    """
    seen = windows(x, size, stride)
    samples, channels, down, across = seen.shape[:4]
    apart = seen.reshape(samples, groups, channels // groups, down, across, *size)
    return apart.transpose(1, 0, 3, 4, 2, 5, 6).reshape(groups, samples * down * across, -1)


def convolve(weights: np.ndarray, codes: np.ndarray, stride: int, groups: int, largest: int) -> np.ndarray:
    """Exact sums [samples * places, outputs], as int64, or as Python integers if float64 is not exact.

    Args:
        weights: Integers[outputs, channels / groups, rows, columns].
        codes:   Integers[samples, channels, rows, columns], including the padding.
        stride:  Distance between neighbouring places.
        groups:  Number of groups of neighbouring channels, each with its own outputs.
        largest: Upper bound of every sum of magnitudes.
    """
    columns = patches(codes.astype(exact_type(largest)), weights.shape[2:], stride, groups)
    sums = exact_product(weights.reshape(groups, len(weights) // groups, -1), columns, largest)
    return np.moveaxis(sums, 0, 1).reshape(columns.shape[1], -1)


def padded(x: np.ndarray, padding: int, value) -> np.ndarray:
    """Images [..., rows, columns] with `padding` rows and columns of a value around each."""
    around = [(0, 0)] * (x.ndim - 2) + [(padding, padding)] * 2
    return np.pad(x, around, constant_values=value) if padding else x


def reciprocal(count: int) -> np.uint16:
    """binary16(1 / count)."""
    return np.float16(1 / count).view(np.uint16)
