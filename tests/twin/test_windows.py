"""Tables of windows, made from a geometry, give this geometry again."""

from math import prod

import numpy as np
import pytest
from concord.twin.recovery.tensors.windows import find_clipped, find_window, groups_of


def table_of(shape, window, stride, dilation, padding):
    """int64[positions, columns], elements of the image that each position reads, -1 for padding; and the positions."""
    rows, columns, channels = shape
    top, bottom, left, right = padding
    padded = np.pad(np.arange(prod(shape)).reshape(shape), ((top, bottom), (left, right), (0, 0)), constant_values=-1)
    spans = [(size - 1) * step + 1 for size, step in zip(window, dilation, strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(padded, spans, (0, 1))[::stride[0], ::stride[1]]
    seen = np.moveaxis(seen[..., ::dilation[0], ::dilation[1]], 2, -1)
    return seen.reshape(seen.shape[0] * seen.shape[1], -1), seen.shape[:2]


def found_again(seed: int) -> bool:
    """Whether a random geometry is found; its elements must be those of the table."""
    rng = np.random.default_rng(seed)
    shape = (*rng.integers(4, 9, 2).tolist(), int(rng.integers(1, 4)))
    window, stride, dilation = (tuple(rng.integers(1, most, 2).tolist()) for most in (3, 4, 3))
    padding = tuple(rng.integers(0, 2, 4).tolist())
    table, positions = table_of(shape, window, stride, dilation, padding)
    used = (table >= 0).any(0)
    table = table[:, used][:, rng.permutation(used.sum())]
    found = find_window(table, shape, [count for count in range(len(table), 0, -1) if len(table) % count == 0])
    if found is None:
        return False
    again, others = table_of(shape, found.size, found.stride, found.dilation, found.padding)
    assert prod(found.positions) == prod(others) == prod(positions)
    np.testing.assert_array_equal(again[:, found.taps * shape[2] + found.channels], table)
    return True


def test_windows_are_found():
    # Where no column of a table has elements at two neighbouring positions, no stride can be seen.
    assert sum(map(found_again, range(200))) > 190


def test_a_table_with_one_other_element_has_no_window():
    table, _ = table_of((6, 6, 2), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
    assert find_window(table, (6, 6, 2), [6]) is not None
    for position, column, element in ((0, 17, 0), (35, 0, 1), (20, 4, -1), (0, 0, 3)):
        other = table.copy()
        other[position, column] = element
        assert find_window(other, (6, 6, 2), [6]) is None


@pytest.mark.parametrize("padding", [(0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 2, 0)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 3)])
def test_windows_without_the_pixels_outside_are_found(stride, padding):
    table, positions = table_of((7, 6, 1), (3, 3), stride, (1, 1), padding)
    found = find_clipped(-np.sort(-table, 1), (7, 6))  # pixels in any order
    assert found.positions == positions
    assert (found.size, found.stride) == ((3, 3), stride)
    again, _ = table_of((7, 6, 1), found.size, found.stride, (1, 1), found.padding)
    np.testing.assert_array_equal(again, table)
    for position in range(len(table)):
        other = table.copy()
        other[position, table[position].argmax()] = -1
        assert find_clipped(other, (7, 6)) is None


def test_groups():
    assert groups_of(np.ones((8, 4), bool)) == 1
    assert groups_of(np.kron(np.eye(4, dtype=bool), np.ones((2, 3), bool))) == 4
    used = np.kron(np.eye(4, dtype=bool), np.ones((2, 3), bool))
    used[0, 3] = True  # a row of the first group reads the second one
    assert groups_of(used) == 2
