"""When a network that is quantised already has the same bits in the machine as in its file.

The machine rounds every sum, and every scaled sum, to the 11 significant bits of binary16, before the next quantiser
rounds it to an integer. A file does so in float32. Both are equal if all scales are powers of two and each number that
counts is a multiple of 2**-f of at most 2**(11 - f): rounding to binary16 then changes nothing. Of what a quantiser
reads, only numbers within its range count, because rounding keeps their order, so that all others stay outside and are
clipped.

Numbers halfway between two integers are common among multiples of 2**-f. The machine rounds x / s + shift to even, so
the shift must be even, too.
"""

from dataclasses import dataclass

import numpy as np

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
