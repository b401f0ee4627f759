"""The softmax of binary16 numbers, and its tables of exp, which golden and hardware share.

    X_i = floor(x_i * 2**16)                    minus infinity counts as -2**16 there
    D_i = max X - X_i                           whole * 2**16 + t, with 0 <= t < 2**16
    B   = base - (slope * low >> 9)             segment t >> 9 of the table `fractions`; low = t mod 2**9
    e_i = B * factor >> shift                   row `whole` of the table `wholes`; 0 beyond its last row
    y_i = binary16(e_i / sum of all e)          rounded once, to nearest, ties to even

B is exp(-t / 2**16) and `factor * 2**-shift` is exp(-whole), each but for a constant that the quotient cancels. e_i
rises with x_i, and so does y_i. A NaN or +inf among the elements, or nothing but -inf, makes every y_i a NaN.

The errors of a quotient, in parts of 2**-16: numbers from 2**-6 up are multiples of 2**-16, and X_i loses less than 1
of smaller ones; e_i and the sum err by 3 each, because of the tables; the shift drops less than one unit of e_i, which
is 4 for a result of 2**-14, below which binary16 is coarser; and it drops less than 1 of the sum of `MOST_ELEMENTS`
terms. These are less than 16 together, half an ulp, and the rounding adds at most another half. So y_i is less than
1 ulp away from the softmax of the real numbers x_i.

The tables are computed with integers only, so they are equal on every computer.
"""

from functools import cache
from typing import NamedTuple

from concord.spec.numbers.activation import ONE, exp_minus

DISTANCE_BITS = 16  #: fraction bits of X and D
SEGMENT_BITS = 7  #: log2 of the number of segments of `fractions`
LOW_BITS = DISTANCE_BITS - SEGMENT_BITS  #: bits of a position within a segment
FACTOR_BITS = 17  #: bits of `base`, `factor` and B: two of them fit one hardware multiplier
SLOPE_BITS = 10
TERM_BITS = 28  #: bits of e
QUOTIENT_BITS = 25  #: fraction bits of e / sum before it is rounded: one below the unit of the smallest binary16 number
MOST_ELEMENTS = 4096  #: elements whose cut-off terms are together less than one part in 2**16 of the sum

_LARGEST = (1 << FACTOR_BITS) - 1  # stands for 1.0


class Segment(NamedTuple):
    """One row of the table of exp over [0, 1): its left end, and how far it falls."""

    base: int
    slope: int


class Whole(NamedTuple):
    """One row of the table of exp of a whole number."""

    factor: int
    shift: int


@cache
def fractions() -> tuple[Segment, ...]:
    """Chords of exp(-t) over 2**SEGMENT_BITS equal parts of [0, 1], which meet at their ends."""
    count = 1 << SEGMENT_BITS
    ends = [_rounded(exp_minus(ONE * i // count)) for i in range(count + 1)]
    return tuple(Segment(left, left - right) for left, right in zip(ends, ends[1:], strict=False))


@cache
def wholes() -> tuple[Whole, ...]:
    """exp(-n) for n = 0, 1, ..., as long as e is not always 0."""
    rows, surplus = [], 2 * FACTOR_BITS - TERM_BITS
    while (value := exp_minus(len(rows) * ONE)) << TERM_BITS >= ONE:
        shift = ONE.bit_length() - 1 - value.bit_length() if rows else 0
        rows.append(Whole(_rounded(value << shift), surplus + shift))
    return tuple(rows)


def sum_bits(elements: int) -> int:
    """Number of bits of the sum of `elements` terms."""
    return TERM_BITS + (elements - 1).bit_length()


def _rounded(value):
    """A value up to ONE in units of 1 / _LARGEST."""
    return (value * _LARGEST + ONE // 2) // ONE
