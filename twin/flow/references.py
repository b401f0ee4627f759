"""Memories and queues that hold references to items instead of the items."""

import numpy as np
from concord.twin.flow.flow import Refs


class Addressed:
    """A memory with addresses; at first, each address refers to the item of the same number of an image.

    Args:
        size:  Number of items.
        image: Index of the value of the image.
    """

    def __init__(self, size: int, image: int):
        self._value, self._item = np.full(size, image, np.int32), np.arange(size, dtype=np.int32)

    def read(self, addresses: np.ndarray, parts: int = 1) -> Refs:
        """References at addresses.

        Args:
            addresses: int[...], indices of items; or of their parts, part k of item i having the index i * parts + k.
            parts:     Number of parts of an item.

        Returns:
            References to items, or to parts if there are several, numbered in the same way.
        """
        if parts == 1:
            return Refs(value=self._value[addresses], item=self._item[addresses])
        item, part = np.divmod(addresses, parts)
        return Refs(value=self._value[item], item=self._item[item] * parts + part.astype(np.int32))

    def write(self, addresses: np.ndarray, value: int):
        """Let addresses refer to the items of a value in order; where an address stands twice, the later item stays."""
        self._value[addresses] = value
        self._item[addresses] = np.arange(len(addresses), dtype=np.int32)

    def content(self) -> Refs:
        """References at all addresses."""
        return Refs(value=self._value.copy(), item=self._item.copy())


class Queued:
    """A first-in first-out queue."""

    def __init__(self):
        self._runs: list[tuple[int, int, int]] = []  # value, first and last item of what waits, the oldest first

    def put(self, value: int, count: int):
        """Add the items of a value."""
        self._runs.append((value, 0, count))

    def take(self, count: int) -> Refs:
        """Remove the oldest items, which the checks of the program have found to be there."""
        taken = []
        while count:
            value, first, last = self._runs.pop(0)
            size = min(count, last - first)
            taken.append((value, first, first + size))
            if first + size < last:
                self._runs.insert(0, (value, first + size, last))
            count -= size
        return runs(taken)


def runs(parts: list[tuple[int, int, int]]) -> Refs:
    """References to ranges of values, each a value with its first and last item, one after the other."""
    if not parts:
        return Refs(value=np.zeros(0, np.int32), item=np.zeros(0, np.int32))
    return Refs(value=np.concatenate([np.full(last - first, value, np.int32) for value, first, last in parts]),
                item=np.concatenate([np.arange(first, last, dtype=np.int32) for _, first, last in parts]))


def shaped(refs: Refs, *shape: int) -> Refs:
    """The same references in another shape."""
    return Refs(value=refs.value.reshape(shape), item=refs.item.reshape(shape))
