"""Words that are taken together: those of an entry of VectorRf, or of a message behind the softmax unit."""

import numpy as np
from concord.twin.flow.flow import Step
from concord.twin.flow.flow_of import complete_entries, complete_messages
from concord.twin.generic.items import Items


class Pending:
    """Words that steps of a chain have written, until all words that are taken together are there.

    Args:
        items:   The lines to which calls are added, and the machine.
        entries: Whether words are taken as entries, which zeros fill up at the end of an iteration; otherwise as
            messages, the words of an iteration.
    """

    def __init__(self, items: Items, *, entries: bool):
        self._items, self._entries = items, entries
        self._parts: list[tuple[int, int, str]] = []  # first and last position, and name, of earlier words
        self._zero = items.lines.store("zero", np.zeros(1, np.float16))

    def complete(self, step: Step, words: str) -> str:
        """Add the words [batch, positions, M] of a step.

        Returns:
            Name of the words that are complete, [batch, words, M], or of native vectors [batch, entries, N]; empty
            where nothing is complete.
        """
        chain, config, (first, last) = step.chain, self._items.config, step.span
        size = config.vector_words if self._entries else chain.result_words
        begin, end = (complete_entries(config, chain, position) if self._entries else
                      complete_messages(chain, position) for position in (first, last))
        parts = [*self._parts, (first, last, words)]
        self._parts = []
        if last % chain.result_words % size:  # the last words belong to what is not complete
            self._parts = parts[-1:] if end > begin else parts
        if end == begin:
            return ""
        index, count = (self._vectors if self._entries else self._words)(chain, parts, begin, end)
        if len(parts) == 1 and count == index.size and np.array_equal(index.ravel(), np.arange(count)):
            return self._items.lines.call("reshape", words, shape=index.shape)
        zero = self._items.lines.call("start", words, self._zero)
        return self._items.lines.take(index, *(name for *_, name in parts), zero)

    def _vectors(self, chain, parts, begin, end) -> tuple[np.ndarray, int]:
        """Element, among those of `parts`, of each element of entries `begin` to `end`; and their number, which stands
        for a zero."""
        size, words = self._items.config.vector_words, chain.result_words
        iteration, entry = np.divmod(np.arange(begin, end), chain.entries)
        word = entry[:, None] * size + np.arange(size)
        index, count = self._elements(parts, iteration[:, None] * words + word)
        return np.where((word < words)[..., None], index, count).reshape(end - begin, -1), count

    def _words(self, _, parts, begin, end) -> tuple[np.ndarray, int]:
        """The same of words `begin` to `end`."""
        return self._elements(parts, np.arange(begin, end))

    def _elements(self, parts, positions):
        """The elements of the words at `positions`; `parts` gives the ranges of words that are there."""
        lanes, first = self._items.config.mfu_lanes, parts[0][0]
        return (positions - first)[..., None] * lanes + np.arange(lanes), (parts[-1][1] - first) * lanes
