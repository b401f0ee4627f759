"""Words on their way to VectorRf: an entry is made by the step that has its last word."""

import numpy as np
from concord.twin.flow.flow import Step
from concord.twin.flow.flow_of import complete_entries
from concord.twin.generic.items import Items


class Pending:
    """Words that steps of a chain have written, until all entries to which they belong are complete.

    Args:
        items: The lines to which calls are added, and the machine.
    """

    def __init__(self, items: Items):
        self._items = items
        self._parts: list[tuple[int, int, str]] = []  # first and last position, and name, of earlier words
        self._zero = items.lines.store("zero", np.zeros(1, np.float16))

    def complete(self, step: Step, place: int, words: str) -> str:
        """Add the words [batch, positions, M] of a step.

        Returns:
            Name of the native vectors [batch, entries, N] of the entries that are complete; empty if there is none.
        """
        chain, config, (first, last) = step.chain, self._items.config, step.span
        begin, end = complete_entries(config, chain, first), complete_entries(config, chain, last)
        parts = [*self._parts, (first, last, words)]
        self._parts = []
        if last % chain.result_words % config.vector_words:  # the last words belong to an entry that is not complete
            self._parts = parts[-1:] if end > begin else parts
        if end == begin:
            return ""
        index, count = _elements(config, chain, parts, begin, end)
        if len(parts) == 1 and count == index.size and np.array_equal(index.ravel(), np.arange(count)):
            return self._items.lines.call("reshape", words, shape=(end - begin, config.native_dim))
        zero = self._items.lines.call("start", words, self._zero)
        return self._items.lines.take(index.reshape(end - begin, config.native_dim), *(name for *_, name in parts),
                                      zero)


def _elements(config, chain, parts, begin, end) -> tuple[np.ndarray, int]:
    """Element, among those of `parts`, of each lane of entries `begin` to `end`; and their number, where a zero is."""
    lanes, size, words = config.mfu_lanes, config.vector_words, chain.result_words
    first, last = parts[0][0], parts[-1][1]
    iteration, entry = np.divmod(np.arange(begin, end), chain.entries)
    word = entry[:, None] * size + np.arange(size)
    count = (last - first) * lanes
    elements = (iteration[:, None] * words + word - first)[..., None] * lanes + np.arange(lanes)
    return np.where((word < words)[..., None], elements, count), count
