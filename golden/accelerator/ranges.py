"""Sets of addresses as ranges: int64[n, 2] of first address and end, in rising order, none touching another."""

from collections.abc import Iterable

import numpy as np

EMPTY = np.zeros((0, 2), np.int64)


def union(parts: Iterable[np.ndarray]) -> np.ndarray:
    """The set of all addresses of ranges [n, 2] in any order; empty ones do not count."""
    found = np.concatenate([EMPTY, *parts])
    found = found[found[:, 0] < found[:, 1]]
    found = found[np.argsort(found[:, 0], kind="stable")]
    ends = np.maximum.accumulate(found[:, 1])
    begins = np.flatnonzero(np.append(True, found[1:, 0] > ends[:-1])[:len(found)])
    return np.stack([found[begins, 0], ends[np.append(begins[1:] - 1, len(found) - 1)[:len(begins)]]], 1)


def of(*ranges: range) -> np.ndarray:
    """The set of all addresses of ranges."""
    return union([np.array([[each.start, each.stop]], np.int64) for each in ranges])


def runs(addresses: np.ndarray) -> np.ndarray:
    """The set of addresses int[...]."""
    found = np.ravel(addresses)
    return union([np.stack([found, found + 1], 1)])


def meeting(one: np.ndarray, other: np.ndarray) -> range:
    """The first addresses that two sets share; empty if there are none."""
    if not len(one) or not len(other):
        return range(0)
    # Of the ranges of `other`, only the last one that begins before the end of a range can be the one that it meets.
    index = np.searchsorted(other[:, 0], one[:, 1], side="left") - 1
    met = np.flatnonzero((index >= 0) & (other[np.maximum(index, 0), 1] > one[:, 0]))
    if not len(met):
        return range(0)
    mine = one[met[0]]
    first = np.searchsorted(other[:, 1], mine[0], side="right")
    return range(int(max(mine[0], other[first, 0])), int(min(mine[1], other[first, 1])))


class GrowingSet:
    """A set that takes ranges one after the other, at a cost that grows almost in proportion to their number."""

    def __init__(self):
        self._levels: list[np.ndarray] = []  # Each is more than twice as long as the next one.

    def add(self, ranges: np.ndarray):
        """Add a set."""
        while self._levels and len(self._levels[-1]) <= 2 * len(ranges):
            ranges = union([self._levels.pop(), ranges])
        self._levels.append(ranges)

    def meeting(self, ranges: np.ndarray) -> range:
        """The first addresses of a set that are in this one, of some level; empty if there are none."""
        return next(filter(len, (meeting(ranges, level) for level in self._levels)), range(0))
