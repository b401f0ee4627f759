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
        self._parts.append((first, last, words))
        parts = self._parts
        if end > begin:
            self._parts = []
        if last % chain.result_words % config.vector_words:  # the last words belong to an entry that goes on
            self._parts = parts if end == begin else parts[-1:]
        if end == begin:
            return ""
        lanes, size = config.mfu_lanes, config.vector_words
        places = np.full(last + 1, -1)  # element of each position among the parts; that of the last one is zero
        count = 0
        for start, stop, _ in parts:
            places[start:stop] = count + np.arange(stop - start) * lanes
            count += (stop - start) * lanes
        iteration, entry = np.divmod(np.arange(begin, end), chain.entries)
        word = entry[:, None] * size + np.arange(size)
        position = np.where(word < chain.result_words, iteration[:, None] * chain.result_words + word, last)
        elements = np.where(position < last, places[position], count)[..., None] + np.arange(lanes)
        elements = np.where((position < last)[..., None], elements, count)
        if count == elements.size and np.array_equal(elements.ravel(), np.arange(count)):
            return self._items.lines.call("reshape", words, shape=(end - begin, config.native_dim))
        zero = self._items.lines.call("start", words, self._zero)
        return self._items.lines.take(elements.reshape(end - begin, config.native_dim),
                                      *(name for *_, name in parts), zero)
