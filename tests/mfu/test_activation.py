"""golden.mfu.activation against functions in fifty decimal digits, on every input."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from concord.golden.lib import float16
from concord.golden.mfu import activation
from concord.spec.numbers.activation import (
    BASIC,
    EXPONENT_BITS,
    FRACTION_BITS,
    GUARD_BITS,
    SLOPE_BITS,
    TABLE_DEPTH,
    Curve,
    blocks,
    table,
)

EVERY = np.arange(1 << 16, dtype=np.uint16)
POSITIVE = EVERY[:0x7C01]  # positive numbers, from zero to infinity
VALUES = {name: getattr(activation, name)(EVERY) for name in ("sigmoid", "tanh", "exp", "reciprocal", "rsqrt", "sqrt")}


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


#: Functions of machines with `more_functions` in fifty digits, and the share of inputs that are rounded correctly.
MORE = {"exp": (Decimal.exp, 0.978), "reciprocal": (lambda x: 1 / x, 0.973), "rsqrt": (lambda x: 1 / x.sqrt(), 0.975),
        "sqrt": (Decimal.sqrt, 0.981)}


@pytest.mark.parametrize("name", MORE)
def test_more_functions_are_within_one_unit_in_the_last_place(name):
    """Of every number: NaN where the function has no value, infinities from 65520 on."""
    (function, share), numbers = MORE[name], EVERY[~float16.is_nan(EVERY)]
    found, finite = VALUES[name][numbers], (numbers & 0x7FFF != 0x7C00) & (numbers & 0x7FFF != 0)
    defined = finite & (name not in ("rsqrt", "sqrt") or numbers < 0x8000)
    assert (found[finite & ~defined] == float16.NAN).all()
    with localcontext() as context:
        context.prec = 50
        limit = Decimal(66000)
        wanted = [min(max(function(Decimal(float(x))), -limit), limit) for x in numbers[defined].view(np.float16)]
        integers = [int((y * 2**120).to_integral_value()) for y in wanted]
    wanted = float16.from_integer(np.array(integers, object), 120)
    distance = np.abs(order(found[defined]) - order(wanted))
    assert distance.max() <= 1, f"{name} of {numbers[defined][distance.argmax()]:04x}"
    assert (distance == 0).mean() > share


@pytest.mark.parametrize(("name", "wanted"), [
    ("exp", [0x3C00, 0x3C00, 0x7C00, 0x0000]), ("reciprocal", [0x7C00, 0xFC00, 0x0000, 0x8000]),
    ("rsqrt", [0x7C00, 0xFC00, 0x0000, 0x7E00]), ("sqrt", [0x0000, 0x8000, 0x7C00, 0x7E00])])
def test_more_functions_at_zeros_and_infinities(name, wanted):
    assert VALUES[name][[0x0000, 0x8000, 0x7C00, 0xFC00]].tolist() == wanted


def test_reciprocals_and_roots_of_powers_of_two_are_exact():
    powers = np.float16(2.0) ** np.arange(-14, 15, 2, dtype=np.float16)
    bits = powers.view(np.uint16)
    for name, exact in (("reciprocal", 1 / powers), ("rsqrt", 1 / np.sqrt(powers)), ("sqrt", np.sqrt(powers))):
        assert VALUES[name][bits].tolist() == exact.view(np.uint16).tolist(), name


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "exp", "sqrt"])
def test_monotone(name):
    rising = np.concatenate([(POSITIVE | 0x8000)[::-1] if name != "sqrt" else POSITIVE[:0], POSITIVE])
    assert (np.diff(order(VALUES[name][rising])) >= 0).all()


@pytest.mark.parametrize("name", ["tanh", "reciprocal"])
def test_odd(name):
    assert (VALUES[name][POSITIVE | 0x8000] == VALUES[name][POSITIVE] | 0x8000).all()


def test_exact_corners():
    corners = [0x0000, 0x8000, 0x7C00, 0xFC00]
    assert VALUES["sigmoid"][corners].tolist() == [0x3800, 0x3800, 0x3C00, 0x0000]
    assert VALUES["tanh"][corners].tolist() == [0x0000, 0x8000, 0x3C00, 0xBC00]
    for results in VALUES.values():
        assert (results[float16.is_nan(EVERY)] == float16.NAN).all()


def test_every_segment_stays_inside_its_fields():
    # The hardware has no more bits in these fields, and normalises by at most one bit.
    assert table() == table(more=True)[: len(table())]
    assert len(table()) <= TABLE_DEPTH
    assert all(-(1 << SLOPE_BITS - 1) <= s.slope < 1 << SLOPE_BITS - 1 for s in table(more=True))
    for curve in Curve:
        for first, k, offset in blocks(curve).values():
            assert first % (1 << k) == 0
            for base, slope, exponent in table(more=True)[first : first + (1 << k)]:
                assert 0 <= exponent < 1 << EXPONENT_BITS[curve not in BASIC]
                assert exponent + offset >= 0
                v = [base + (slope * t >> FRACTION_BITS) for t in range(0, 1 << FRACTION_BITS, 1 << k)]
                lowest = 1 << 9 + GUARD_BITS if exponent + offset and base else 0
                assert lowest <= min(v) <= max(v) < 1 << 11 + GUARD_BITS


def test_rounding_of_the_formula():
    # The formula of the module, computed in fractions, on one octave of each curve.
    cases = [(Curve.RISING, "sigmoid", 0), (Curve.FALLING, "sigmoid", 0x8000), (Curve.TANH, "tanh", 0)]
    for curve, name, sign in cases:
        first, k, _ = blocks(curve)[16]
        for m in range(1 << FRACTION_BITS):
            base, slope, exponent = table()[first + (m >> FRACTION_BITS - k)]
            v = base + (slope * ((m << k) % (1 << FRACTION_BITS)) >> FRACTION_BITS)
            want = np.float16(float(Fraction(v) / 2 ** (29 - exponent))).view(np.uint16)
            assert VALUES[name][sign | 16 << FRACTION_BITS | m] == want
