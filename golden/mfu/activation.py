"""Sigmoid and tanh of binary16: within one unit in the last place, monotone, by integer arithmetic only.

Correctly rounded are 98.3 % (sigmoid) and 99.3 % (tanh) of all inputs.
"""

from functools import cache

import numpy as np
from concord.golden.lib.float16 import NAN, SIGN
from concord.spec.numbers.activation import FRACTION_BITS, GUARD_BITS, TANH_LINEAR, Curve, blocks, table

_MAGNITUDES = np.arange(0x7C01)  # zero to infinity


def sigmoid(a):
    """1 / (1 + exp(-a)), piecewise linear and rounded once; exactly 0.5, 0 and 1 at zero and the infinities.

    Args:
        a: uint16[...], binary16 bit patterns.

    Returns:
        uint16[...] bit patterns; any NaN is 0x7e00.
    """
    return _sigmoid()[a]


def tanh(a):
    """tanh(a), piecewise linear and rounded once; odd, `a` itself below 2**-6, exact at zeros and infinities.

    Args and Returns as `sigmoid`.
    """
    return _tanh()[a]


@cache
def _sigmoid():
    return _table(_evaluate(Curve.RISING), _evaluate(Curve.FALLING))


@cache
def _tanh():
    curve = np.where(_MAGNITUDES >> FRACTION_BITS < TANH_LINEAR + 15, _MAGNITUDES, _evaluate(Curve.TANH))
    return _table(curve, curve | SIGN)


def _table(positive, negative):
    """All 65,536 results, from those of the magnitudes under either sign."""
    results = np.full(1 << 16, NAN, np.uint16)
    results[: positive.size] = positive
    results[SIGN : SIGN + negative.size] = negative
    results.flags.writeable = False
    return results


def _evaluate(curve):
    """The formula of spec.numbers.activation on every magnitude."""
    exponent, fraction = _MAGNITUDES >> FRACTION_BITS, _MAGNITUDES & (1 << FRACTION_BITS) - 1
    block = blocks(curve)
    first, k = np.array([block.get(f, (0, 0)) for f in range(32)]).T[:, exponent]
    base, slope, unit = np.array(table())[first + (fraction >> FRACTION_BITS - k)].T
    t = (fraction << k) & (1 << FRACTION_BITS) - 1
    return _round(base + (slope * t >> FRACTION_BITS), unit)


def _round(value, exponent):
    """Bits of value * 2**(exponent - 29), to nearest, ties to even."""
    # In the lower half of its range, a normal result has one more fraction bit.
    finer = (value >> 10 + GUARD_BITS == 0) & (exponent > 0)
    drop = GUARD_BITS - finer
    floor = value >> drop
    rest = value - (floor << drop)
    half = 1 << drop - 1
    rounded = floor + ((rest > half) | ((rest == half) & (floor & 1 == 1)))
    return (exponent - finer << FRACTION_BITS) + rounded
