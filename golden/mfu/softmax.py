"""Softmax unit: the softmax of the elements of an output, by integer arithmetic and one rounding."""

from functools import cache

import numpy as np
from concord.golden.lib.float16 import INFINITY, NAN, SIGN, from_integer, is_nan, to_real
from concord.spec.numbers.softmax import DISTANCE_BITS, LOW_BITS, QUOTIENT_BITS, fractions, wholes


def softmax(a):
    """exp(a_i) / sum of exp(a_j) over the last axis, as `spec.numbers.softmax` defines it: within 1 ulp.

    Args:
        a: uint16[..., elements], binary16 bit patterns; at most `spec.numbers.softmax.MOST_ELEMENTS` elements.

    Returns:
        uint16[..., elements] bit patterns. All are 0x7e00 where an element is NaN or +inf, or where all are -inf.
    """
    x = to_real(a)
    lowest = -(1 << DISTANCE_BITS)  # below every finite number
    scaled = np.floor(np.where(np.isfinite(x), x, lowest) * (1 << DISTANCE_BITS)).astype(np.int64)
    e = exponential(scaled.max(-1, keepdims=True) - scaled)
    quotient, rest = np.divmod(e << QUOTIENT_BITS, e.sum(-1, keepdims=True))
    result = from_integer(2 * quotient + (rest > 0), QUOTIENT_BITS + 1)  # the lowest bit is sticky
    undefined = (is_nan(a) | (a == INFINITY)).any(-1) | (a == SIGN | INFINITY).all(-1)
    return np.where(undefined[..., None], np.uint16(NAN), result)


def real_softmax(x):
    """The softmax of real numbers over the last axis, in their own type."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def exponential(distance):
    """e of `spec.numbers.softmax`: about exp(-distance / 2**16), in units of which `TERM_BITS` bits hold exp(0).

    Args:
        distance: int64[...], at least 0.

    Returns:
        int64[...]; it falls, or stays, where the distance rises.
    """
    rows, whole = _tables()[1], distance >> DISTANCE_BITS
    near = whole < len(rows)
    factor, shift = np.moveaxis(rows[np.where(near, whole, 0)], -1, 0)
    return np.where(near, fraction(distance & (1 << DISTANCE_BITS) - 1) * factor >> shift, 0)


def fraction(t):
    """B of `spec.numbers.softmax`, int64[...], from the fraction t of a distance, int64[...]."""
    base, slope = np.moveaxis(_tables()[0][t >> LOW_BITS], -1, 0)
    return base - (slope * (t & (1 << LOW_BITS) - 1) >> LOW_BITS)


@cache
def _tables():
    return np.array(fractions(), np.int64), np.array(wholes(), np.int64)
