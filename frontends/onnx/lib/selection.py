"""Parts of an image or vector as the result of a layer: some of its channels, in any order, and each pixel of a grid.

    the second half of 8 channels:         4 outputs, each with a weight of 1 at its channel
    x[:, :, ::2, ::2]:                     a window of one pixel that moves by two
    space to depth, by slices or by name:  a window of 2 x 2 pixels, each output with a weight of 1 at one of them
"""

import numpy as np
from concord.frontends.onnx.lib.step import misplaced
from concord.frontends.onnx.lib.views import ZERO
from concord.net.arithmetic.windows import Window
from concord.net.ops.weighted import Convolution, Linear

#: Most products of a convolution that only takes a part of an image, nearly all of which are with 0.
MOST = 1 << 31


def selection(shape: tuple[int, ...], indices: np.ndarray) -> Convolution | None:
    """The convolution whose result is a part of an image; None for pixels on no grid, or far from the first one.

    Args:
        shape:   Channels, rows and columns of the image.
        indices: int[samples, outputs, rows, columns], where each element of the part lies in images [samples, *shape]
            in C order; an output of zeros alone is one of padding.
    """
    first, outputs = indices[0], indices.shape[1]
    size, used = int(np.prod(shape)), first[:, 0, 0] != ZERO
    starts = np.where(used[:, None, None], size * np.arange(len(indices))[:, None, None, None], 0)
    if not used.any() or not np.array_equal(indices, first + starts) or ((first == ZERO) == used[:, None, None]).any():
        return None
    channel, row, column = np.unravel_index(first[used], shape)
    down, across = _along(row[:, :, 0], shape[1]), _along(column[:, 0, :], shape[2])
    if down is None or across is None or shape[0] * down[0] * across[0] * first.size > MOST:
        return None
    weight = np.zeros((outputs, shape[0], down[0], across[0]), np.float32)
    weight[np.flatnonzero(used), channel[:, 0, 0], row[:, 0, 0], column[:, 0, 0]] = 1
    window = Window(size=weight.shape[2:], stride=(down[1], across[1]))
    seen = channel[:, :1, :1] * shape[1] + row[:, :, :1]
    whole = seen * shape[2] + column[:, :1, :]
    if not np.array_equal(whole, first[used]) or window.counts(*shape[1:]) != first.shape[1:]:
        return None
    return Convolution(weight=weight, bias=np.zeros(outputs, np.float32), window=window)


def bordered(channels: int, padding: tuple[int, int, int, int]) -> Convolution:
    """The convolution whose result is an image with zeros above, below, left and right of it."""
    weight = np.eye(channels, dtype=np.float32)[:, :, None, None]
    return Convolution(weight=weight, bias=np.zeros(channels, np.float32),
                       window=Window(size=(1, 1), padding=padding))


def elements(indices: np.ndarray, size: int) -> Linear:
    """The layer whose result is a part of a vector.

    Args:
        indices: int[outputs], where each element of the part lies in the vector, or ZERO.
        size:    Number of elements of the vector.
    """
    weight = np.zeros((len(indices), size), np.float32)
    used = np.flatnonzero(indices != ZERO)
    weight[used, indices[used]] = 1
    return Linear(weight=weight, bias=np.zeros(len(indices), np.float32))


def same_order(indices: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """For indices [..., elements]: the vector [...] that each row lies in, and where its elements lie in it.

    Raises:
        Misplaced: a row has elements of several vectors, or rows have other orders.
    """
    moment, inside = np.divmod(indices, size)
    rows = inside.reshape(-1, inside.shape[-1])
    if (indices == ZERO).any() or (moment != moment[..., :1]).any() or (rows != rows[0]).any():
        raise misplaced("it reads elements of several time steps or pixels at once")
    return moment[..., 0], rows[0]


def _along(lines: np.ndarray, size: int) -> tuple[int, int] | None:
    """Size and stride of a window along one axis.

    Args:
        lines: int[outputs, positions], the row or column of each position.
        size:  Number of rows or columns of the image.
    """
    count = lines.shape[1]
    stride = int(lines[0, 1] - lines[0, 0]) if count > 1 else size
    if stride < 1 or (np.diff(lines, axis=1) != stride).any():
        return None
    return max(int(lines[:, 0].max()) + 1, size - stride * count + 1), stride
