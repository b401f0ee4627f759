"""Words on their way to VectorRf: an entry is quantised when its last word has come."""

import numpy as np
from concord.spec.isa.chain import Chain
from concord.spec.machine.config import Config


class EntryWords:
    """A buffer for the words of incomplete entries of VectorRf.

    Args:
        config: The machine.
        dtype:  Type of the words: uint16, or float64 in full precision.
    """

    def __init__(self, config: Config, dtype: type = np.uint16):
        self._config = config
        self._waiting = np.zeros((0, config.mfu_lanes), dtype)

    def clear(self):
        """Forget all words."""
        self._waiting = self._waiting[:0]

    def add(self, chain: Chain, first: int, words: np.ndarray) -> tuple[range, np.ndarray]:
        """Add words, and take the entries that are complete with them.

        Args:
            chain: Chain that writes the words.
            first: Position (iteration * words + word) of the first word.
            words: uint16[n, M], lanes beyond Rows +0; float64[n, M] in full precision, as the result then is, too.

        Returns:
            Numbers (iteration * entries + entry) of the complete entries, and their native vectors uint16[entries, N].
        """
        size, count, lanes = self._config.vector_words, chain.result_words, self._config.mfu_lanes
        ready = np.concatenate([self._waiting, words])
        last = first + len(words)
        begun, skipped = divmod(last - len(ready), count)  # iteration and word of the first word that is ready
        ended, reached = divmod(last, count)
        spread = np.zeros(((ended + 1 - begun) * count, lanes), words.dtype)
        spread[skipped:skipped + len(ready)] = ready
        # The words of each iteration begin an entry; zeros fill up its last one.
        padded = np.zeros((ended + 1 - begun, chain.entries * size, lanes), words.dtype)
        padded[:, :count] = spread.reshape(-1, count, lanes)
        numbers = range(begun * chain.entries + skipped // size, ended * chain.entries + reached // size)
        self._waiting = ready[len(ready) - reached % size:]
        return numbers, padded.reshape(-1, self._config.native_dim)[skipped // size:][:len(numbers)]
