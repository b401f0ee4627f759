"""golden.mfu.activation against sigmoid and tanh in fifty decimal places, on every input."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from concord.golden.lib import float16
from concord.golden.mfu import activation
from concord.spec.numbers.activation import FRACTION_BITS, GUARD_BITS, SLOPE_BITS, TABLE_DEPTH, Curve, blocks, table

EVERY = np.arange(1 << 16, dtype=np.uint16)
POSITIVE = EVERY[:0x7C01]  # positive numbers, from zero to infinity
VALUES = {name: getattr(activation, name)(EVERY) for name in ("sigmoid", "tanh")}


def correctly_rounded(name: str) -> np.ndarray:
    """The correctly rounded results for every number except NaN, computed with 40-digit integers."""
    with localcontext() as context:
        context.prec = 50
        e = [(-Decimal(float(x))).exp() for x in POSITIVE.view(np.float16)]
        if name == "tanh":
            positive = [(1 - y * y) / (1 + y * y) for y in e]
            falling = [-y for y in positive]
        else:
            positive, falling = [1 / (1 + y) for y in e], [y / (1 + y) for y in e]
        # Multiples of 2**-120 decide every rounding: no inexact result is that close to a tie.
        integers = [int((y * 2**120).to_integral_value()) for y in positive + falling]
    return float16.from_integer(np.array(integers, object), 120)


def order(bits):
    """Integers in the order of the values; those of neighbouring values differ by one."""
    magnitude = (bits & 0x7FFF).astype(int)
    return np.where(bits & 0x8000, -magnitude, magnitude)


@pytest.mark.parametrize(("name", "share"), [("sigmoid", 0.982), ("tanh", 0.993)])
def test_within_one_unit_in_the_last_place(name, share):
    numbers = np.concatenate([POSITIVE, POSITIVE | 0x8000])
    distance = np.abs(order(VALUES[name][numbers]) - order(correctly_rounded(name)))
    assert distance.max() <= 1, f"{name} of {numbers[distance.argmax()]:04x}"
    assert (distance == 0).mean() > share


@pytest.mark.parametrize("name", VALUES)
def test_monotone(name):
    rising = np.concatenate([(POSITIVE | 0x8000)[::-1], POSITIVE])
    assert (np.diff(order(VALUES[name][rising])) >= 0).all()


def test_tanh_is_odd():
    assert (VALUES["tanh"][POSITIVE | 0x8000] == VALUES["tanh"][POSITIVE] | 0x8000).all()


def test_exact_corners():
    corners = [0x0000, 0x8000, 0x7C00, 0xFC00]
    assert VALUES["sigmoid"][corners].tolist() == [0x3800, 0x3800, 0x3C00, 0x0000]
    assert VALUES["tanh"][corners].tolist() == [0x0000, 0x8000, 0x3C00, 0xBC00]
    for results in VALUES.values():
        assert (results[float16.is_nan(EVERY)] == float16.NAN).all()


def test_every_segment_stays_inside_its_fields():
    # The hardware has no more bits in these fields, and normalises by at most one place.
    assert len(table()) <= TABLE_DEPTH
    assert all(-(1 << SLOPE_BITS - 1) <= s.slope < 1 << SLOPE_BITS - 1 for s in table())
    for curve in Curve:
        for first, k in blocks(curve).values():
            assert first % (1 << k) == 0
            for base, slope, exponent in table()[first : first + (1 << k)]:
                v = [base + (slope * t >> FRACTION_BITS) for t in range(0, 1 << FRACTION_BITS, 1 << k)]
                assert (1 << 9 + GUARD_BITS if exponent else 0) <= min(v) <= max(v) < 1 << 11 + GUARD_BITS


def test_rounding_of_the_formula():
    # The formula of the module, computed in fractions, on one octave of each curve.
    cases = [(Curve.RISING, "sigmoid", 0), (Curve.FALLING, "sigmoid", 0x8000), (Curve.TANH, "tanh", 0)]
    for curve, name, sign in cases:
        first, k = blocks(curve)[16]
        for m in range(1 << FRACTION_BITS):
            base, slope, exponent = table()[first + (m >> FRACTION_BITS - k)]
            v = base + (slope * ((m << k) % (1 << FRACTION_BITS)) >> FRACTION_BITS)
            want = np.float16(float(Fraction(v) / 2 ** (29 - exponent))).view(np.uint16)
            assert VALUES[name][sign | 16 << FRACTION_BITS | m] == want
