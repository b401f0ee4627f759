"""A scale and an offset for each channel of what a layer reads."""

from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Line:
    """u = scale * x + offset.

    Attributes:
        scale, offset: float64[channels]. No scale is 0.
    """

    scale: np.ndarray
    offset: np.ndarray

    @classmethod
    def neutral(cls, channels: int) -> Self:
        """The line that changes nothing."""
        return cls(scale=np.ones(channels), offset=np.zeros(channels))

    @property
    def same(self) -> bool:
        """Whether all channels have one scale and one offset."""
        return not (np.ptp(self.scale) or np.ptp(self.offset))

    @property
    def zero(self) -> np.ndarray:
        """float64[channels], the x for which u is 0."""
        return 0.0 - self.offset / self.scale  # without -0

    @property
    def inverse(self) -> Self:
        """The line from u to x."""
        return type(self)(scale=1 / self.scale, offset=self.zero)

    def then(self, after: "Line") -> Self:
        """One line instead of this one and another after it."""
        return type(self)(scale=after.scale * self.scale, offset=after.scale * self.offset + after.offset)

    def repeated(self, channels: int) -> Self:
        """The line of so many channels, of which neighbours share numbers, as those of a flattened image do."""
        return type(self)(scale=np.repeat(self.scale, channels // len(self.scale)),
                          offset=np.repeat(self.offset, channels // len(self.offset)))

    def applied(self, x: np.ndarray) -> np.ndarray:
        """u of numbers x[samples, channels, ...]."""
        beside = (-1, *[1] * (x.ndim - 2))
        return self.scale.reshape(beside) * x + self.offset.reshape(beside)
