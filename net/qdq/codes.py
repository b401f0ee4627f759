"""How the integers of a quantiser become operand codes of a machine.

A quantiser of scale s rounds x to the integer r = clip(round(x / s), first, last), half to even; a zero point only
changes what these integers are called. The machine rounds x / s + shift, and clips at the ends of its own format. So
these ends must be first + shift and last + shift, unless something else clips there.
"""

from dataclasses import dataclass

import numpy as np
from concord.net.ops.grid import IntegerGrid
from concord.spec.numbers.formats import Format


@dataclass(frozen=True, kw_only=True, slots=True)
class OperandCodes:
    """Operand codes that stand for the integers of a quantiser.

    Attributes:
        step:     Scale of the quantiser.
        first:    Smallest integer r.
        last:     Largest integer r.
        fmt:      Operand format of the machine.
        unsigned: Whether the machine clips at 0..levels instead of lowest..highest.
        shift:    What is added to x / s before it is rounded. If it is odd, numbers halfway between two integers are
            rounded to the other one than by the quantiser.
        relu:     Whether the layer before must clip at r = 0, which is `first`.
        turned:   Whether the layer before gives relu(last - x / s), which becomes x / s again ahead of the rounding.
            This clips at `last` in any format that is wide enough.
        apart:    Whether a relu clips at r = 0 in real units, so that the layer before cannot answer in these codes.
    """

    step: float
    first: int
    last: int
    fmt: Format
    unsigned: bool
    shift: int
    relu: bool = False
    turned: bool = False
    apart: bool = False

    @property
    def stored(self) -> int:
        """Mantissa of the integer 0: mantissa = r + stored."""
        return self.shift - self.fmt.zero * self.unsigned

    @property
    def output(self) -> tuple[float, float]:
        """[step, offset] of what a layer gives that answers in these codes: real = step * result + offset."""
        return (-self.step, self.step * self.last) if self.turned else (self.step, -self.step * self.shift)

    @property
    def limit(self) -> int:
        """Magnitude from which on every result that answers in these codes becomes the first or the last of them."""
        if self.turned:
            return self.last - self.first
        return max(abs(self.first + self.shift), abs(self.last + self.shift))


def bounds(grid: IntegerGrid, nonnegative: bool, ceiling: float | None) -> tuple[int, int]:
    """First and last integer r of a quantiser behind a relu, if `nonnegative`, and behind a clip at `ceiling`.

    Rounding keeps the order of numbers, so clips ahead of a quantiser are clips of its integers.
    """
    first, last = int(grid.lowest - grid.zero_point), int(grid.highest - grid.zero_point)
    if nonnegative:
        first = max(first, 0)
    if ceiling is not None:
        last = max(first, min(last, int(np.rint(ceiling / grid.scale))))
    return first, last


def codes(step: float, first: int, last: int, fmt: Format, *, nonnegative: bool, direct: bool) -> OperandCodes | None:
    """The operand codes of a machine for the integers of a quantiser; None if it has none that clip as they do.

    Args:
        step:        Scale of the quantiser.
        first, last: Its range, see `bounds`.
        fmt:         Operand format of the machine.
        nonnegative: Whether a relu is ahead of the quantiser.
        direct:      Whether a layer with weights is right ahead of it, which nothing else reads.
    """
    count, found = last - first, []
    if (first, last) == (fmt.lowest, fmt.highest):
        found.append({"unsigned": False, "shift": 0})
    if nonnegative and (first, last) == (0, fmt.highest):
        found.append({"unsigned": False, "shift": 0, "relu": True})
    if count == fmt.levels:
        found += [{"unsigned": True, "shift": -first}, {"unsigned": False, "shift": fmt.lowest - first}]
    if direct and count <= fmt.levels:
        found.append({"unsigned": True, "shift": -first, "turned": True})
    if nonnegative and first == 0 and last <= fmt.highest:
        found.append({"unsigned": False, "shift": fmt.highest - last, "apart": True})
    if nonnegative and first == 0 and last <= fmt.levels:
        found.append({"unsigned": True, "shift": fmt.levels - last, "apart": True})
    found.sort(key=lambda one: one["shift"] % 2)
    return OperandCodes(step=step, first=first, last=last, fmt=fmt, **found[0]) if found else None


def width(fmt: Format) -> str:
    """What integers a format has, in words."""
    return f"{fmt.lowest}..{fmt.highest}, or {fmt.levels + 1} unsigned ones"


BITS = 11  #: Significant bits of binary16.


@dataclass(frozen=True, kw_only=True, slots=True)
class Multiples:
    """Numbers that binary16 holds without rounding: multiples of 2**-fraction whose magnitude is at most `largest`."""

    fraction: int
    largest: float

    @property
    def held(self) -> bool:
        """Whether binary16 holds all of them."""
        return held(self.fraction, self.largest)


def held(fraction: int, largest: float) -> bool:
    """Whether binary16 holds all multiples of 2**-fraction up to a magnitude, of normal numbers."""
    return largest <= 2.0 ** (BITS - fraction) and largest < 2.0**15 and fraction <= 14 + BITS - 1


def power_of_two(values) -> bool:
    """Whether all numbers but zero are powers of two, with either sign."""
    values = np.abs(np.asarray(values, np.float64))
    return bool((np.frexp(values[values > 0])[0] == 0.5).all())


def fraction_of(values) -> int:
    """The smallest f for which all numbers are multiples of 2**-f."""
    values = np.asarray(values, np.float64).ravel()
    found = [_fraction(float(value)) for value in np.unique(values[values != 0])]
    return max(found, default=-32)


def _fraction(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return denominator.bit_length() - 1 if denominator > 1 else 1 - (numerator & -numerator).bit_length()
