"""Exponents of a trainer: guesses under which writers convert, and what they have measured meanwhile."""

from dataclasses import dataclass

import numpy as np
from concord.golden.lazy.tensor import ceil_log2, measure, requantize
from concord.golden.lazy.tensor_layers import parameter_gradient
from concord.spec.numbers.lazy import E_MIN
from concord.spec.trainer.config import LANES


@dataclass(slots=True)
class Exponent:
    """State of one exponent.

    Attributes:
        now:     E, which readers take.
        next:    The guess, under which writers convert. It differs from E only within an update.
        length:  0 if all exact sums since the last `measure` are 0, else 1 + ceil(log2 of the largest magnitude).
        lsb:     Exponent of one unit of these sums.
        written: Whether there are sums since the last `measure`; all of them must have one unit.
        change:  By how much E of parameters rises in the pass of an update that is under way.
    """

    now: int = E_MIN
    next: int = E_MIN
    length: int = 0
    lsb: int = 0
    written: bool = False
    change: int = 0

    def unit(self, planes: int) -> int:
        """Exponent of one unit of mantissas of so many planes."""
        return self.now - (8 * planes - 1)

    def differs(self, lsb: int) -> bool:
        """Whether sums of this unit do not go with those before."""
        return self.written and self.lsb != lsb

    def record(self, sums: np.ndarray, lsb: int):
        """Measure exact sums, int64[...]."""
        self.length, self.lsb, self.written = max(self.length, length(sums)), lsb, True

    def convert(self, sums: np.ndarray, lsb: int, planes: int) -> np.ndarray:
        """Measure exact sums, int64[...], and bring them to mantissas under the guess."""
        self.record(sums, lsb)
        return requantize(sums, lsb, 8 * planes, exponent=self.next).mantissas

    def set(self, exponent: int):
        """Make E and the guess a number."""
        self.now = self.next = exponent

    def take(self, length: int) -> tuple[int, int]:
        """The exponents that `measure` makes of a length: of a tensor, and of gradients of parameters; begins anew."""
        largest = np.array([1 << length - 1 if length else 0], np.int64)
        self.length, self.written = 0, False
        return int(measure(largest, self.lsb).item()), int(parameter_gradient(largest, self.lsb).exponent.item())


def length(sums: np.ndarray) -> int:
    """0 for zeros, else 1 + ceil(log2 of the largest magnitude): -2^k and 2^k have the same length."""
    largest = int(np.abs(sums).max(initial=0))
    return 1 + int(ceil_log2(largest)) if largest else 0


class ExponentWords:
    """Exponents as words uint8[words, 16] of E + 126: what space `Space.EXPONENTS` is."""

    def __init__(self, exponents: list[Exponent]):
        self._exponents = exponents

    def __len__(self) -> int:
        return len(self._exponents) // LANES

    def __getitem__(self, words: np.ndarray) -> np.ndarray:
        return self._stored()[words]

    def __setitem__(self, words: np.ndarray, values: np.ndarray):
        stored = self._stored()
        stored[words] = values
        for k in np.unique(words):
            for exponent, byte in zip(self._exponents[LANES * k : LANES * (k + 1)], stored[k], strict=True):
                exponent.set(int(byte) + E_MIN)
                exponent.change = 0

    def _stored(self) -> np.ndarray:
        return np.array([each.now - E_MIN for each in self._exponents], np.uint8).reshape(-1, LANES)
