"""Softmax unit: the softmax of the elements of an output, by integer arithmetic and one rounding."""

import numpy as np
from concord.golden.lib.float16 import INFINITY, NAN, SIGN, from_integer, is_nan, to_real
from concord.golden.mfu.exponential import exponential
from concord.spec.numbers.softmax import DISTANCE_BITS, QUOTIENT_BITS


def softmax(a):
    """exp(a_i) / sum of exp(a_j) over the last axis, as `spec.numbers.softmax` defines it: within 1 ulp.

    Args:
        a: uint16[..., elements], binary16 bit patterns; at most `spec.numbers.softmax.MOST_ELEMENTS` elements.

    Returns:
        uint16[..., elements] bit patterns. All are 0x7e00 where an element is NaN or +inf, or where all are -inf.
    """
    x = to_real(a)
    lowest = -(1 << DISTANCE_BITS)  # below every finite number
    places = np.floor(np.where(np.isfinite(x), x, lowest) * (1 << DISTANCE_BITS)).astype(np.int64)
    e = exponential(places.max(-1, keepdims=True) - places)
    quotient, rest = np.divmod(e << QUOTIENT_BITS, e.sum(-1, keepdims=True))
    result = from_integer(2 * quotient + (rest > 0), QUOTIENT_BITS + 1)  # the lowest bit is sticky
    undefined = (is_nan(a) | (a == INFINITY)).any(-1) | (a == SIGN | INFINITY).all(-1)
    return np.where(undefined[..., None], np.uint16(NAN), result)


def real_softmax(x):
    """The softmax of real numbers over the last axis, in their own type."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)
