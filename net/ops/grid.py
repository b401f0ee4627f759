"""Integers of networks that are quantised already, and the operator that rounds numbers to them."""

from dataclasses import asdict, dataclass, replace

import numpy as np
from concord.net.ops.operator import Operator, Takes

WIDEST = 16  #: Most bits of an integer.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class IntegerGrid:
    """Which numbers a tensor of integers can hold: scale * (integer - zero_point).

    Attributes:
        scale:      Step between neighbouring numbers: float64, or float64 of any shape.
        zero_point: The integer that stands for zero, of the shape of the scale.
        bits:       Bits of the integers.
        signed:     Whether they have a sign.
        narrow:     Whether one integer fewer is used: the lowest of signed ones, the highest of others.
    """

    scale: float | np.ndarray
    zero_point: float | np.ndarray
    bits: int
    signed: bool
    narrow: bool = False

    @property
    def lowest(self) -> int:
        """The smallest integer."""
        return -(1 << self.bits - 1) + self.narrow if self.signed else 0

    @property
    def highest(self) -> int:
        """The largest integer."""
        return (1 << self.bits - self.signed) - 1 - (self.narrow and not self.signed)

    def clipped(self, lowest: int, highest: int) -> "IntegerGrid | None":
        """The same grid with fewer integers, or None if no bits have these."""
        lowest, highest = max(lowest, self.lowest), min(highest, self.highest)
        found = (replace(self, bits=bits, signed=signed, narrow=narrow)
                 for bits in range(1, WIDEST + 1) for signed in (True, False) for narrow in (False, True))
        return next((one for one in found if (one.lowest, one.highest) == (lowest, highest)), None)

    @classmethod
    def of_outputs(cls, scale: np.ndarray, zero_point: np.ndarray, weight: np.ndarray, **bits) -> "IntegerGrid":
        """The grid of the weights [outputs, ...] of a layer, from a scale and a zero point for each output."""
        beside = [1] * (weight.ndim - 1)
        scale, zero_point = (np.asarray(part, np.float32).astype(np.float64).reshape(-1, *beside)
                             for part in (scale, zero_point))
        return cls(scale=scale, zero_point=zero_point, **bits)

    def integers(self, x: np.ndarray) -> np.ndarray:
        """float64 integers that stand for numbers, rounded half to even and clipped."""
        return np.clip(np.round(x / self.scale) + self.zero_point, self.lowest, self.highest)

    def quantized(self, x: np.ndarray) -> np.ndarray:
        """The numbers that these integers stand for, in float64."""
        return (self.integers(x) - self.zero_point) * self.scale

    def check(self):
        """Refuse a grid that no integers lie on.

        Raises:
            ValueError: a scale is not above zero, the bits are too few or too many, or a zero point is outside them.
        """
        if not isinstance(self.bits, int) or not 1 <= self.bits <= WIDEST:
            raise ValueError(f"it has integers of {self.bits} bits; 1 to {WIDEST} are possible")
        if not (np.all(np.isfinite(self.scale)) and np.all(np.greater(self.scale, 0))):
            raise ValueError("it has a scale that is not above zero")
        if np.any(np.less(self.zero_point, self.lowest)) or np.any(np.greater(self.zero_point, self.highest)):
            raise ValueError(f"it has a zero point outside {self.lowest}..{self.highest}")

    def check_weights(self, weight: np.ndarray):
        """Refuse weights that do not lie on the grid.

        Raises:
            ValueError: there are such weights, or the grid itself is refused.
        """
        self.check()
        weight = weight.astype(np.float64)
        # Products of integers and scales are rounded to float32.
        if not np.allclose(self.quantized(weight), weight, rtol=1e-5, atol=0):
            raise ValueError(f"it has weights that are no integers of {self.bits} bits times its scale")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Quantize(Operator):
    """y = scale * (integer - zero_point), where the integer is the one of the grid that is nearest to x.

    Attributes:
        grid: The integers, with one scale and one zero point.
    """

    grid: IntegerGrid

    kind = "quantize"
    takes = Takes.EITHER

    def __post_init__(self):
        self.grid.check()

    def real(self, x, lengths):
        return self.grid.quantized(x)

    def attributes(self):
        return asdict(self.grid)

    @classmethod
    def restored(cls, attributes, tensors):
        return cls(grid=IntegerGrid(**attributes))
