"""Sigmoid and tanh as piecewise linear curves, in one table of segments that golden and hardware share.

A curve takes the magnitude of a binary16 number, of exponent field f and fraction m. Each octave f is divided into 2**k
equal segments, k as listed in `_OCTAVES`; its block of the table starts at `first`:

    segment = table[first + (m >> 10 - k)]
    t       = (m << k) mod 1024
    v       = base + (slope * t >> 10)
    y       = v * 2**(exponent - 29), rounded once to binary16

The table is computed with integers only, so it is equal on every computer.
"""

from enum import IntEnum, StrEnum
from functools import cache
from typing import NamedTuple

FRACTION_BITS = 10  #: fraction bits of binary16, and of t
GUARD_BITS = 5  #: bits of v below the last place of the result
BASE_BITS = 11 + GUARD_BITS
SLOPE_BITS = 14  #: bits of a slope, sign included
EXPONENT_BITS = 4
TABLE_DEPTH = 512
ONE = 1 << 96  #: 1.0: far finer than any table that is made of it


class Activation(StrEnum):
    """What a layer or a gate applies to its result."""

    NONE = "none"
    RELU = "relu"
    SIGMOID = "sigmoid"
    TANH = "tanh"


class Curve(IntEnum):
    """A function of a magnitude."""

    RISING = 0  #: sigmoid(|x|)
    FALLING = 1  #: sigmoid(-|x|)
    TANH = 2  #: tanh(|x|); below 2**-6 it is |x| itself


class Segment(NamedTuple):
    """One row of the table; see the module's formula."""

    base: int
    slope: int
    exponent: int


class Block(NamedTuple):
    """Place of an octave's `1 << k` segments in the table, from address `first`, a multiple of their number."""

    first: int
    k: int


#: log2 of the number of segments in each octave [2**o, 2**(o+1)): chosen so that together they round as many of the
#: 65,536 inputs correctly as 512 rows can.
_OCTAVES = {
    Curve.TANH: {-6: 2, -5: 2, -4: 3, -3: 3, -2: 4, -1: 5, 0: 5, 1: 5, 2: 3},
    Curve.RISING: {-10: 0, -9: 0, -8: 0, -7: 0, -6: 0, -5: 0, -4: 0, -3: 1, -2: 2, -1: 3, 0: 4, 1: 4, 2: 4, 3: 2},
    Curve.FALLING: {
        -11: 0, -10: 0, -9: 0, -8: 0, -7: 0, -6: 0, -5: 0, -4: 1, -3: 1, -2: 3, -1: 3, 0: 5, 1: 5, 2: 6, 3: 7, 4: 3,
    },
}  # fmt: skip
TANH_LINEAR = -6  #: octave below which tanh(x) is x
#: Segment of a curve below its octaves, and above them.
_ENDS = {
    Curve.TANH: (None, Segment(1 << BASE_BITS - 1, 0, 14)),
    Curve.RISING: (Segment(1 << BASE_BITS - 1, 0, 13), Segment(1 << BASE_BITS - 1, 0, 14)),
    Curve.FALLING: (Segment(1 << BASE_BITS - 1, 0, 13), Segment(0, 0, 0)),
}


@cache
def table() -> tuple[Segment, ...]:
    """All segments of the three curves, in the order of their addresses."""
    rows = {}
    for key, (first, k) in _layout().items():
        segments = [key] if isinstance(key, Segment) else [_fit(*key, k, i) for i in range(1 << k)]
        rows |= enumerate(segments, first)
    return tuple(rows[address] for address in sorted(rows))


@cache
def blocks(curve: Curve) -> dict[int, Block]:
    """The segments of each exponent field 0..31 of |x| (31 is infinity); none where tanh(x) is x."""
    keys = {f: (curve, f - 15) if f - 15 in _OCTAVES[curve] else _ENDS[curve][f > 15] for f in range(32)}
    return {f: _layout()[key] for f, key in keys.items() if key is not None}


@cache
def _layout():
    """Place of each octave and each flat end. The largest come first, so each starts at a multiple of its size."""
    sizes = {(curve, octave): k for curve, octaves in _OCTAVES.items() for octave, k in octaves.items()}
    sizes |= {end: 0 for ends in _ENDS.values() for end in ends if end is not None}
    layout, first = {}, 0
    for key, k in sorted(sizes.items(), key=lambda item: -item[1]):
        layout[key] = Block(first, k)
        first += 1 << k
    if first > TABLE_DEPTH:
        raise ValueError(f"the curves take {first} segments, but the table holds {TABLE_DEPTH}: use fewer in _OCTAVES")
    return layout


def _fit(curve, octave, k, i):
    """Segment i: its chord, moved by half of the chord's largest distance from the curve."""
    points = (ONE * ((1 << k + 1) + 2 * i + half) << 5 >> k + 6 - octave for half in range(3))
    y0, y1, y2 = (_value(curve, x) for x in points)  # at the left end, in the middle, at the right end
    offset = (2 * y1 - y0 - y2) // 4
    # The exponent makes v as large as it can be, one unit to spare; a subnormal result has no finer place than 2**-24.
    highest = (max(y0, y2) + offset) * ((1 << BASE_BITS) + 1) >> BASE_BITS
    exponent = max(0, highest.bit_length() - ONE.bit_length() + 14)
    unit = ONE >> 29 - exponent
    # Half a unit makes up for the floor of slope * t >> 10, half for this one.
    return Segment((y0 + offset + unit) // unit, (y2 - y0 + unit // 2) // unit, exponent)


def _value(curve, x):
    """The curve at x > 0, in fixed point."""
    if curve is Curve.TANH:
        e = exp_minus(2 * x)
        return (ONE - e) * ONE // (ONE + e)
    e = exp_minus(x)
    return (ONE if curve is Curve.RISING else e) * ONE // (ONE + e)


def exp_minus(x: int) -> int:
    """exp(-x) of x >= 0, both in units of 1 / ONE: a power of two times a short series."""
    halvings, rest = divmod(x, _ln2())
    total, term, n = 0, ONE, 0
    while term:
        total += -term if n % 2 else term
        n += 1
        term = term * rest // ONE // n
    return total >> halvings


@cache
def _ln2():
    """ln 2: the sum of 1 / (n * 2**n)."""
    return sum((ONE << 8) // (n << n) for n in range(1, 110)) >> 8
