"""Transposed convolutions as ordinary ones: each phase of the result is a convolution of its own.

A transposed convolution of stride (a, b) gives the pixels (a * p + i, b * q + j). For one i and one j, the phase, they
are a convolution of the input by every a-th row and b-th column of the kernel. `Enlarging` puts them side by
side.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np
from concord.net.arithmetic.windows import Window
from concord.net.ops.weighted import Convolution


def result_size(size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
                more: Sequence[int]) -> tuple[int, int]:
    """Rows and columns that a transposed convolution gives.

    Args:
        size:    Rows and columns of the image.
        kernel:  Rows and columns of the kernel.
        stride:  Distance between results of neighbouring pixels.
        padding: Rows cut off above and below the result, and columns left and right of it.
        more:    Rows and columns added at the end (output_padding).

    Raises:
        ValueError: they are no multiples of the stride.
    """
    made = tuple((one - 1) * step + span - padding[2 * axis] - padding[2 * axis + 1] + end for axis, (
        one, step, span, end) in enumerate(zip(size, stride, kernel, more, strict=True)))
    if any(one < step or one % step for one, step in zip(made, stride, strict=True)):
        raise ValueError(f"its result of {made[0]} x {made[1]} pixels is no multiple of its stride {list(stride)}: "
                         "choose padding and output_padding so that it is, for example a kernel as large as the stride")
    return made


def phases(weight: np.ndarray, bias: np.ndarray, *, groups: int, size: Sequence[int], stride: Sequence[int],
           padding: Sequence[int], made: Sequence[int]) -> list[Convolution]:
    """The convolutions of all phases, row by row; each gives made / stride pixels.

    Args:
        weight:  float[channels, outputs / groups, rows, columns], as files have transposed convolutions.
        bias:    float[outputs].
        made:    Rows and columns of the result.
        Others:  As `result_size` has them, and `Convolution`.
    """
    channels, each = weight.shape[:2]
    kernels = weight.reshape(groups, channels // groups, each, *weight.shape[2:]).swapaxes(1, 2)
    kernels = np.pad(kernels.reshape(groups * each, channels // groups, *weight.shape[2:]),
                     ((0, 0), (0, 0), (0, 1), (0, 1)))  # the last row and column are zeros
    axes = [[_phase(first, weight.shape[2 + axis], stride[axis], padding[2 * axis], size[axis],
                    made[axis] // stride[axis]) for first in range(stride[axis])] for axis in (0, 1)]
    found = []
    for (rows, down), (columns, across) in product(*axes):
        taken = kernels[:, :, rows][:, :, :, columns]
        found.append(Convolution(weight=taken.astype(np.float32), bias=bias.astype(np.float32), groups=groups,
                                 window=Window(size=taken.shape[2:], padding=(*down, *across))))
    return found


def _phase(first: int, taps: int, stride: int, cut: int, size: int, count: int) -> tuple[list[int], tuple[int, int]]:
    """Along one axis: the row of the kernel for each pixel of the window, -1 for none, and the padding on both ends.

    The row i + cut + stride * d of the kernel meets the pixel d before the position of the result.
    """
    most = max((taps - 1 - first - cut) // stride, 0)
    least = min(-((first + cut) // stride), count - size, most)
    rows = [first + cut + stride * distance for distance in range(most, least - 1, -1)]
    return [row if 0 <= row < taps else -1 for row in rows], (most, count - least - size)
