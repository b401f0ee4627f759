"""Windows: tables of elements that are read position by position, as the windows of a convolution or of pooling."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RecoveredWindow:
    """A window that moves over an image.

    Attributes:
        positions: Rows and columns of positions.
        size:      Rows and columns of pixels of the window.
        stride:    Distance between positions, down and across.
        dilation:  Distance between pixels of the window, down and across.
        padding:   Rows and columns of padding above, below, left and right of the image.
        taps:      int64[columns of the table], number of the pixel in the window, row by row.
        channels:  int64[columns of the table], channel.
    """

    positions: tuple[int, int]
    size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]
    taps: np.ndarray
    channels: np.ndarray


def find_window(table: np.ndarray, shape: tuple[int, int, int], across: Iterable[int]) -> RecoveredWindow | None:
    """The window that reads a table, verified element by element, or None.

    Args:
        table:  int64[positions, columns], element of an image by row, column and channel; -1 for padding. Each column
                of the table has an element at some position.
        shape:  Rows, columns and channels of the image.
        across: Candidates for the number of positions across.
    """
    pixel, channel = np.divmod(table, shape[2])
    row, column = np.divmod(pixel, shape[1])
    inside = table >= 0
    first = inside.argmax(0)
    channels = channel[first, np.arange(table.shape[1])]
    if (inside & (channel != channels)).any():
        return None
    for count in across:
        if len(table) % count == 0:
            axes = [_axis(each, inside, number, steps, other) for each, number, steps, other in (
                (row, np.arange(len(table)) // count, count, shape[0]),
                (column, np.arange(len(table)) % count, 1, shape[1]))]
            found = all(axes) and _window(axes, inside, shape, len(table) // count, count, channels)
            if found:
                return found
    return None


def _axis(at, inside, number, steps, size):
    """Stride and offset of each column along one axis, or None.

    Args:
        at:     int64[positions, columns], coordinate on the axis.
        number: int64[positions], number of the position along the axis.
        steps:  Distance between positions that are neighbours along the axis.
        size:   Size of the image along the axis.
    """
    pairs = inside[:-steps] & inside[steps:] & (np.diff(number[::1])[:, None] > 0 if steps == 1 else True)
    moves = (at[steps:] - at[:-steps])[pairs] if steps < len(at) else np.zeros(0, np.int64)
    if moves.size:
        return _strided(at, inside, number, int(moves[0]), size) if (moves == moves[0]).all() else None
    found = (_strided(at, inside, number, stride, size) for stride in range(1, size + 1))
    return next(filter(None, found), None)


def _strided(at, inside, number, stride, size):
    """Stride and offset of each column, and bool[positions, columns], which coordinates lie in the image; None for
    another stride."""
    if stride < 1:
        return None
    offsets = at - number[:, None] * stride
    first = offsets[inside.argmax(0), np.arange(at.shape[1])]
    if (inside & (offsets != first)).any():
        return None
    there = first + number[:, None] * stride
    there = (there >= 0) & (there < size)
    count = int(number[-1]) + 1
    reached = np.zeros((count, at.shape[1]), bool)
    np.logical_or.at(reached, number, inside)
    return (stride, first, there) if (reached[number] == there).all() else None


def _window(axes, inside, shape, down, across, channels):
    """The window of both axes, if exactly the pixels inside the image are read."""
    (_, _, rows), (_, _, columns) = axes
    if (inside != (rows & columns)).any():
        return None
    sizes, steps, padding, taps = [], [], [], []
    for (stride, offset, _), size, count in zip(axes, shape, (down, across), strict=False):
        low = min(int(offset.min()), 0)
        dilation = int(np.gcd.reduce(offset - low)) or 1
        reach = int(offset.max()) - low
        after = max(0, (count - 1) * stride + reach + 1 + low - size)
        if count == 1 and size - low + after - reach > stride:
            stride = size  # The window has one position only, and a larger stride leaves out the others.
        if (size - low + after - reach - 1) // stride + 1 != count:
            return None
        sizes.append(reach // dilation + 1)
        steps.append((stride, dilation))
        padding += [-low, after]
        taps.append((offset - low) // dilation)
    return RecoveredWindow(positions=(down, across), size=tuple(sizes), stride=(steps[0][0], steps[1][0]),
                           dilation=(steps[0][1], steps[1][1]), padding=tuple(padding),
                           taps=taps[0] * sizes[1] + taps[1], channels=channels)


def find_clipped(pixels: np.ndarray, shape: tuple[int, int]) -> RecoveredWindow | None:
    """The window of which each position has the pixels inside the image, or None.

    Args:
        pixels: int64[positions, pixels], pixels of each position, -1 for none; positions are ordered row by row.
        shape:  Rows and columns of the image.
    """
    pixels = np.sort(pixels, 1)
    inside = pixels >= 0
    if (inside[:, 1:] & (pixels[:, 1:] == pixels[:, :-1])).any():
        return None
    ends = []
    for axis in np.divmod(pixels, shape[1]):
        ends.append((np.where(inside, axis, 1 << 30).min(1), np.where(inside, axis, -1).max(1)))
    middles = [low + high for low, high in ends]
    across = int(np.argmax(middles[0] != middles[0][0])) or len(pixels)
    if len(pixels) % across:
        return None
    axes = [_clipped_axis(low.reshape(-1, across), high.reshape(-1, across), size, turned)
            for (low, high), size, turned in zip(ends, shape, (False, True), strict=True)]
    if not all(axes) or (inside.sum(1) != np.prod([high - low + 1 for low, high in ends], 0)).any():
        return None
    (size, stride, padding), (width, step, sides) = axes
    return RecoveredWindow(positions=(len(pixels) // across, across), size=(size, width), stride=(stride, step),
                           dilation=(1, 1), padding=(*padding, *sides), taps=np.zeros(0), channels=np.zeros(0))


def _clipped_axis(low, high, size, turned):
    """Size, stride and padding of windows along an axis, by their first and last pixels; None if they are none."""
    if turned:
        low, high = low.T, high.T
    if (low != low[:, :1]).any() or (high != high[:, :1]).any():
        return None
    low, high = low[:, 0], high[:, 0]
    count, longest = len(low), int((high - low).max()) + 1
    for stride in range(1, size + longest + 1):
        for before in range(longest):
            first = np.arange(count) * stride - before
            if (np.maximum(first, 0) == low).all() and (np.minimum(first + longest - 1, size - 1) == high).all():
                after = max(0, int(first[-1]) + longest - size)
                if (size + before + after - longest) // stride + 1 == count:
                    return longest, stride, (before, after)
    return None


def groups_of(used: np.ndarray) -> int:
    """Largest number of groups of a convolution.

    Args:
        used: bool[rows, channels], whether a row has a weight that is not zero for a channel.
    """
    rows, channels = used.shape
    for count in range(np.gcd(rows, channels), 1, -1):
        if rows % count == 0 and channels % count == 0:
            mask = np.arange(rows)[:, None] // (rows // count) == np.arange(channels) // (channels // count)
            if not (used & ~mask).any():
                return count
    return 1


def window_settings(window: RecoveredWindow) -> dict:
    """The settings of a window, except those that are as by default."""
    settings = {"stride": window.stride, "padding": window.padding, "dilation": window.dilation}
    plain = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1)}
    return {name: value for name, value in settings.items() if value != plain[name]}
