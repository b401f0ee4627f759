"""Windows of images, the inputs of each position of a convolution or pooling layer, and images read as sequences."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from concord.net.arithmetic.integer import exact_product, exact_type


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """A window that moves over an image. Each pair is (down, across).

    Attributes:
        size:     Rows and columns of pixels that a window holds.
        stride:   Distance between neighbouring positions of the window.
        dilation: Distance between neighbouring pixels of the window.
        padding:  Rows above and below the image, and columns left and right of it.
    """

    size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def span(self) -> tuple[int, int]:
        """Rows and columns from the first pixel of a window to its last one."""
        return tuple((size - 1) * step + 1 for size, step in zip(self.size, self.dilation, strict=True))

    def counts(self, rows: int, columns: int) -> tuple[int, int]:
        """Number of positions, vertically and horizontally, in an image of that size; below 1 where there is none."""
        above, below, left, right = self.padding
        along = rows + above + below, columns + left + right
        return tuple((size - span) // step + 1 for size, span, step in zip(along, self.span, self.stride, strict=True))

    def bordered(self, x: np.ndarray, value) -> np.ndarray:
        """Images [..., rows, columns] with their padding, which holds a value."""
        above, below, left, right = self.padding
        around = [(0, 0)] * (x.ndim - 2) + [(above, below), (left, right)]
        return np.pad(x, around, constant_values=value) if any(self.padding) else x

    def inside(self, x: np.ndarray) -> np.ndarray:
        """Images [..., rows, columns] without their padding."""
        above, below, left, right = self.padding
        return x[..., above : x.shape[-2] - below, left : x.shape[-1] - right]

    def seen(self, x: np.ndarray) -> np.ndarray:
        """The window at each position in x[samples, channels, rows, columns], which already has its padding.

        Returns:
            A view [samples, channels, *positions, *size].
        """
        (down, across), (row, column) = self.stride, self.dilation
        every = np.lib.stride_tricks.sliding_window_view(x, self.span, (2, 3))
        return every[:, :, ::down, ::across, ::row, ::column]

    def patches(self, x: np.ndarray, groups: int) -> np.ndarray:
        """The windows of x[samples, channels, rows, columns], each as one row for each group of channels.

        Returns:
            [groups, samples * positions, columns]; the columns are ordered by channel, then by row.
        """
        seen = self.seen(x)
        samples, channels, down, across = seen.shape[:4]
        apart = seen.reshape(samples, groups, channels // groups, down, across, *self.size)
        return apart.transpose(1, 0, 3, 4, 2, 5, 6).reshape(groups, samples * down * across, -1)


def convolve(weights: np.ndarray, codes: np.ndarray, window: Window, groups: int, largest: int) -> np.ndarray:
    """Exact sums [samples * positions, outputs], as int64, or as Python integers if float64 is not exact.

    Args:
        weights: Integers[outputs, channels / groups, rows, columns].
        codes:   Integers[samples, channels, rows, columns], including the padding.
        window:  The window of the weights.
        groups:  Number of groups of neighbouring channels, each with its own outputs.
        largest: Upper bound of every sum of magnitudes.
    """
    columns = window.patches(codes.astype(exact_type(largest)), groups)
    sums = exact_product(weights.reshape(groups, len(weights) // groups, -1), columns, largest)
    return np.moveaxis(sums, 0, 1).reshape(columns.shape[1], -1)


def reciprocal(count: float) -> np.uint16:
    """binary16(1 / count)."""
    return np.float16(1 / count).view(np.uint16)


class TimeAxis(StrEnum):
    """The side of an image along which time goes."""

    ROWS = "rows"  #: a time step is one row
    COLUMNS = "columns"  #: a time step is one column


def backward(sequences: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """[samples, time, ...] with the time steps of each sample in reverse order; steps after its end stay."""
    steps = np.arange(sequences.shape[1])
    last_first = np.asarray(lengths)[:, None] - 1 - steps
    return sequences[np.arange(len(sequences))[:, None], np.where(last_first >= 0, last_first, steps)]


def steps_of_image(x: np.ndarray, time: TimeAxis) -> np.ndarray:
    """[samples, time, elements] of images [samples, channels, rows, columns].

    The vector of a time step holds its pixels one after the other, each with all its channels.
    """
    made = x.transpose((0, 2, 3, 1) if time is TimeAxis.ROWS else (0, 3, 2, 1))
    return made.reshape(*made.shape[:2], -1)
