"""Functions of one number as piecewise linear curves, in one table of segments that golden and hardware share.

A curve takes the magnitude of a binary16 number, of exponent field f and fraction m. Each octave f is divided into 2**k
equal segments, k as listed in `_OCTAVES`; its block of the table starts at `first`:

    segment = table[first + (m >> 10 - k)]
    t       = (m << k) mod 1024
    v       = base + (slope * t >> 10)
    y       = v * 2**(exponent + offset - 29), rounded once to binary16

A subnormal number with z zeros above its highest fraction bit has f = -z, and m is shifted until that bit is the hidden
one. The octaves of reciprocal and roots are alike: they share blocks, and only the `offset` of an octave differs.

Sigmoid and tanh are in every machine, in the first 512 rows; the other curves follow them in a machine that has
`more_functions`. The table is computed with integers only, so it is equal on every computer.
"""

from enum import IntEnum, StrEnum
from functools import cache
from math import isqrt
from typing import NamedTuple

FRACTION_BITS = 10  #: fraction bits of binary16, and of t
GUARD_BITS = 5  #: bits of v below the last place of the result
BASE_BITS = 11 + GUARD_BITS
SLOPE_BITS = 14  #: bits of a slope, sign included
TABLE_DEPTH = 512
EXPONENT_BITS = {False: 4, True: 5}  #: Bits of a segment's exponent, without and with `more_functions`.
FIELDS = range(-15, 32)  #: The values of f; zero has the lowest, an infinity the highest.
ONE = 1 << 96  #: 1.0: far finer than any table that is made of it


class Activation(StrEnum):
    """What a layer or a gate applies to its result."""

    NONE = "none"
    RELU = "relu"
    SIGMOID = "sigmoid"
    TANH = "tanh"
    EXP = "exp"
    RECIPROCAL = "reciprocal"
    RSQRT = "rsqrt"
    SQRT = "sqrt"


class Curve(IntEnum):
    """A function of a magnitude."""

    RISING = 0  #: sigmoid(|x|)
    FALLING = 1  #: sigmoid(-|x|)
    TANH = 2  #: tanh(|x|); below 2**-6 it is |x| itself
    EXP_RISING = 3  #: exp(|x|), below `EXP_INFINITE`
    EXP_FALLING = 4  #: exp(-|x|)
    RECIPROCAL = 5  #: 1 / |x|, above `RECIPROCAL_INFINITE`
    RSQRT = 6  #: 1 / sqrt(|x|) of a number that is neither zero nor infinite
    SQRT = 7  #: sqrt(|x|) of a number that is neither zero nor infinite


BASIC = (Curve.RISING, Curve.FALLING, Curve.TANH)  #: Curves of every machine.


class Segment(NamedTuple):
    """One row of the table; see the module's formula."""

    base: int
    slope: int
    exponent: int


class Block(NamedTuple):
    """Range of an octave's `1 << k` segments in the table, from address `first`, a multiple of their number."""

    first: int
    k: int
    offset: int = 0


#: log2 of the number of segments in each octave [2**o, 2**(o+1)). Those of sigmoid and tanh together round as many of
#: the 65,536 inputs correctly as 512 rows can. Of alike octaves only the first ones are here.
_OCTAVES = {
    Curve.TANH: {-6: 2, -5: 2, -4: 3, -3: 3, -2: 4, -1: 5, 0: 5, 1: 5, 2: 3},
    Curve.RISING: {-10: 0, -9: 0, -8: 0, -7: 0, -6: 0, -5: 0, -4: 0, -3: 1, -2: 2, -1: 3, 0: 4, 1: 4, 2: 4, 3: 2},
    Curve.FALLING: {
        -11: 0, -10: 0, -9: 0, -8: 0, -7: 0, -6: 0, -5: 0, -4: 1, -3: 1, -2: 3, -1: 3, 0: 5, 1: 5, 2: 6, 3: 7, 4: 3,
    },
    Curve.EXP_RISING: {o: max(0, min(o + 5, 7)) for o in range(-11, 4)},
    Curve.EXP_FALLING: {o: max(0, min(o + 5, 7)) for o in range(-12, 4)} | {4: 3},
    Curve.RECIPROCAL: {0: 6, 14: 4, 15: 4},  # results of the last two octaves are subnormal
    Curve.RSQRT: {0: 5, 1: 5},
    Curve.SQRT: {0: 5, 1: 5},
}  # fmt: skip
#: Curves whose octaves are alike: after so many octaves, results are multiplied by so many powers of two.
_PERIODS = {Curve.RECIPROCAL: (1, -1), Curve.RSQRT: (2, -1), Curve.SQRT: (2, 1)}
#: Magnitude, as a bit pattern, from which exp is infinite: the smallest one whose exp is nearer to 2**16 than to 65504.
EXP_INFINITE = 0x498C
RECIPROCAL_INFINITE = 0x0100  #: Magnitude, as a bit pattern, up to which the reciprocal is infinite: 2**-16.
TANH_LINEAR = -6  #: octave below which tanh(x) is x
#: Segment of a curve below its octaves, and above them.
_ENDS = {
    Curve.TANH: (None, Segment(1 << BASE_BITS - 1, 0, 14)),
    Curve.RISING: (Segment(1 << BASE_BITS - 1, 0, 13), Segment(1 << BASE_BITS - 1, 0, 14)),
    Curve.FALLING: (Segment(1 << BASE_BITS - 1, 0, 13), Segment(0, 0, 0)),
    Curve.EXP_RISING: (Segment(1 << BASE_BITS - 1, 0, 14), None),
    Curve.EXP_FALLING: (Segment(1 << BASE_BITS - 1, 0, 14), Segment(0, 0, 0)),
}


@cache
def table(more: bool = False) -> tuple[Segment, ...]:
    """All segments of sigmoid and tanh, and with `more` of the other curves, in the order of their addresses."""
    rows = {}
    for layout in (_layout(), _layout(more=True))[:1 + more]:
        for key, (first, k, _) in layout.items():
            segments = [key] if isinstance(key, Segment) else [_fit(*key, k, i) for i in range(1 << k)]
            rows |= enumerate(segments, first)
    return tuple(rows.get(address, Segment(0, 0, 0)) for address in range(max(rows) + 1))


@cache
def blocks(curve: Curve) -> dict[int, Block]:
    """The segments of each value of f; none where the result is no segment's."""
    layout, octaves = _layout(more=curve not in BASIC), _OCTAVES[curve]
    if curve in _PERIODS:
        period, powers = _PERIODS[curve]
        alike = {f: divmod(f - 15, period) for f in range(-9, 31) if f < 29 or curve is not Curve.RECIPROCAL}
        own = {o + 15: layout[curve, o] for o in octaves if o >= period}
        return {f: layout[curve, base]._replace(offset=powers * times) for f, (times, base) in alike.items()} | own
    keys = {f: (curve, f - 15) if f - 15 in octaves else _ENDS[curve][f > 15] for f in FIELDS}
    return {f: layout[key] for f, key in keys.items() if key is not None}


@cache
def _layout(*, more=False):
    """Range of each octave and each flat end. The largest come first, so each starts at a multiple of its size."""
    curves = [curve for curve in _OCTAVES if (curve in BASIC) is not more]
    sizes: dict[tuple[Curve, int] | Segment, int] = {
        (curve, octave): k for curve in curves for octave, k in _OCTAVES[curve].items()}
    sizes |= {end: 0 for curve in curves for end in _ENDS.get(curve, ()) if end is not None}
    layout, first = {}, TABLE_DEPTH if more else 0
    for key, k in sorted(sizes.items(), key=lambda item: -item[1]):
        layout[key] = Block(first, k)
        first += 1 << k
    if first > TABLE_DEPTH and not more:
        raise ValueError(f"the curves take {first} segments, but the table holds {TABLE_DEPTH}: use fewer in _OCTAVES")
    return layout


def _fit(curve, octave, k, i):
    """Segment i: its chord, moved by half of the chord's largest distance from the curve."""
    points = (ONE * ((1 << k + 1) + 2 * i + half) << 15 >> k + 16 - octave for half in range(3))
    y0, y1, y2 = (_value(curve, x) for x in points)  # at the left end, in the middle, at the right end
    offset = (2 * y1 - y0 - y2) // 4
    # The exponent makes v as large as it can be, one unit to spare; a subnormal result has no finer unit than 2**-24.
    highest = (max(y0, y2) + offset) * ((1 << BASE_BITS) + 1) >> BASE_BITS
    exponent = max(0, highest.bit_length() - ONE.bit_length() + 14)
    if exponent > 30:  # beyond binary16: no input uses it
        return Segment(0, 0, 0)
    unit = ONE << 1 >> 30 - exponent
    # Half a unit makes up for the floor of slope * t >> 10, half for this one.
    return Segment((y0 + offset + unit) // unit, (y2 - y0 + unit // 2) // unit, exponent)


def _value(curve, x):
    """The curve at x > 0, in fixed point."""
    match curve:
        case Curve.RECIPROCAL:
            return ONE * ONE // x
        case Curve.RSQRT:
            return isqrt(ONE**3 // x)
        case Curve.SQRT:
            return isqrt(x * ONE)
    e = exp_minus(2 * x if curve is Curve.TANH else x)
    match curve:
        case Curve.EXP_FALLING:
            return e
        case Curve.EXP_RISING:
            return ONE * ONE // e
        case Curve.TANH:
            return (ONE - e) * ONE // (ONE + e)
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
