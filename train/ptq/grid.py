"""The integers that weights may become."""

from dataclasses import dataclass

import numpy as np
from concord.spec.formats import Format


@dataclass(frozen=True, slots=True)
class Grid:
    """lowest, lowest + step, .. highest.

    Attributes:
        lowest, highest: Ends.
        step:            1, or 2 for odd integers.
    """

    lowest: int
    highest: int
    step: int = 1

    @classmethod
    def of(cls, fmt: Format) -> "Grid":
        """All mantissas of a format."""
        return cls(fmt.lowest, fmt.highest)

    @classmethod
    def odd(cls, bits: int) -> "Grid":
        """2**bits odd integers around zero, which take one bit more."""
        return cls(1 - (1 << bits), (1 << bits) - 1, 2)

    @property
    def count(self) -> int:
        """How many."""
        return (self.highest - self.lowest) // self.step + 1

    @property
    def least(self) -> int:
        """The smallest magnitude."""
        return self.step - 1

    def nearest(self, values: np.ndarray) -> np.ndarray:
        """int32[...]: ties to even multiples of the step."""
        codes = self.step * np.rint((values - self.least) / self.step) + self.least
        return np.clip(codes, self.lowest, self.highest).astype(np.int32)
