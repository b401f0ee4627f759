"""Grids of integers, to which weights are quantised."""

from dataclasses import dataclass

import numpy as np
from concord.net.quantize.recipe import WeightTraining
from concord.spec.numbers.formats import Format


@dataclass(frozen=True, slots=True)
class Grid:
    """The integers lowest, lowest + step, .. highest.

    Attributes:
        lowest:  Smallest integer.
        highest: Largest integer.
        step:    Distance of neighbours: 1, or 2 for odd integers.
    """

    lowest: int
    highest: int
    step: int = 1

    @classmethod
    def of(cls, fmt: Format) -> "Grid":
        """The grid of all mantissas of a format."""
        return cls(fmt.lowest, fmt.highest)

    @classmethod
    def odd(cls, bits: int) -> "Grid":
        """The grid of the 2**bits odd integers around zero, which need bits + 1 bits."""
        return cls(1 - (1 << bits), (1 << bits) - 1, 2)

    @classmethod
    def trained(cls, method: WeightTraining, bits: int, symmetric: bool) -> "Grid":
        """The integers that a method of training gives weights.

        Args:
            method:    The method.
            bits:      Bits of a weight.
            symmetric: Whether the lowest integer is left out.
        """
        half = 1 << bits - 1
        return cls.odd(bits) if method.odd else cls(symmetric - half, half - 1)

    @property
    def format(self) -> Format:
        """The format whose mantissas hold the integers."""
        return Format(bits=self.bits, symmetric=self.lowest == -self.highest)

    @property
    def count(self) -> int:
        """Number of integers."""
        return (self.highest - self.lowest) // self.step + 1

    @property
    def bits(self) -> int:
        """Bits of a two's complement number that holds the highest integer."""
        return self.highest.bit_length() + 1

    @property
    def least(self) -> int:
        """Smallest magnitude of the integers."""
        return self.step - 1

    def nearest(self, values: np.ndarray) -> np.ndarray:
        """int32[...]: the nearest integers of the grid; ties go to even multiples of the step."""
        codes = self.step * np.rint((values - self.least) / self.step) + self.least
        return np.clip(codes, self.lowest, self.highest).astype(np.int32)
