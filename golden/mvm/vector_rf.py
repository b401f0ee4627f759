"""VectorRf: quantised native vectors, the operands of products, and the words of entries that are not complete."""

import numpy as np
from concord.golden.lib.float16 import from_integer
from concord.golden.mvm.quantizer import quantize
from concord.spec.isa.chain import Chain
from concord.spec.machine.config import Config


class VectorRf:
    """The vector register file: entries of N mantissas and one stored exponent. An entry has no mode.

    Attributes:
        mantissas: int16[entries, N]; int64 of formats of more than 16 bits.
        exponents: int64[entries], stored exponents E - e_min; 0 for integers.
    """

    def __init__(self, config: Config):
        self._config = config
        self.mantissas = np.zeros((config.vector_rf, config.native_dim), config.activations.dtype)
        self.exponents = np.zeros(config.vector_rf, np.int64)

    def store(self, addresses: np.ndarray, bits: np.ndarray, *, integer: bool = False, unsigned: bool = False):
        """Quantise vectors and write them to entries.

        Args:
            addresses: int64[n]; where an address stands twice, the later vector stays.
            bits:      uint16[n, N], binary16 patterns.
            integer:   Whether the vectors become integers, not blocks.
            unsigned:  Whether these integers are unsigned codes.
        """
        self.mantissas[addresses], self.exponents[addresses] = quantize(
            bits, self._config.activations, integer=integer, unsigned=unsigned)

    def operands(self, addresses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mantissas [..., N] and stored exponents [...] of entries at addresses int64[...]."""
        return self.mantissas[addresses], self.exponents[addresses]

    def numbers(self, words: np.ndarray, *, integer: bool = False, unsigned: bool = False) -> np.ndarray:
        """Words of entries as numbers.

        Args:
            words:    int64[...], indices of words; word k of entry a has the index a * N/M + k.
            integer:  Whether the entries hold integers, not blocks.
            unsigned: Whether these integers are unsigned codes.

        Returns:
            uint16[..., M], binary16 patterns.
        """
        config = self._config
        mantissas = self.mantissas.reshape(-1, config.mfu_lanes)[words]
        return numbers(config, mantissas, self.exponents[words // config.vector_words], integer=integer,
                       unsigned=unsigned)


def numbers(config: Config, mantissas, exponents, *, integer: bool = False, unsigned: bool = False):
    """Values of mantissas, rounded once to binary16: mantissa * 2**(E - (bits - 1)), or the integer; zero is +0.

    Args:
        config:    The machine.
        mantissas: Integers [..., lanes].
        exponents: int64[...], stored exponents; ignored in integer mode.
        integer:   Whether the mantissas are integers.
        unsigned:  Whether the integers are unsigned codes, stored as code - zero point.

    Returns:
        uint16[..., lanes], binary16 patterns.
    """
    fmt, mantissas = config.activations, np.asarray(mantissas, np.int64)
    if integer:
        return from_integer(mantissas + fmt.zero * unsigned, 0)
    return from_integer(mantissas, fmt.bits - 1 - fmt.e_min - np.asarray(exponents)[..., None])


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
