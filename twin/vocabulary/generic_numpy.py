"""Functions of generated source that only scripts of words need, in numpy; see `numpy_functions` for all others.

They take what no trained network has and any legal program may have: totals that wrap in a wide accumulator, matrices
that the program loads itself, entries that are written in one mode and read in the other.
"""

from functools import reduce

import numpy as np
from concord.twin.vocabulary.numpy_functions import maximum, significant


def words(x, lanes):
    """Vectors cut into words, filled up with zeros: [batch, places * words, lanes]."""
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % lanes)])
    return x.reshape(len(x), np.prod(x.shape[1:]) // lanes, lanes)


def kept(x, mask):
    """x where the mask is 1, and +0 where it is 0."""
    return np.where(mask != 0, x, x.dtype.type(0))


def pool(x):
    """The largest pixel of [batch, places, pixels, channels], channel by channel."""
    return reduce(maximum, np.moveaxis(x, 2, 0))


def exponents_of(x, exponents, rule, precision=0):
    """Exponent of each block, the last axis: [..., block] to [..., 1]."""
    fraction, exponent = np.frexp(np.abs(finite(x)).max(-1, keepdims=True))
    exponent = exponent - (fraction == 0.5) * (rule == "ceil")
    if precision:  # magnitudes that round up to a power of two
        exponent = exponent + (fraction >= 1 - 2.0 ** -(precision + 1))
    exponent = np.where(fraction == 0, exponents[0], exponent)
    return np.clip(exponent, *exponents).astype(np.float64)


def mantissas_of(x, exponents, bits, lowest, highest, precision=0):
    """Mantissas under given exponents."""
    return np.clip(nearest(scaled(finite(x), -exponents, bits - 1), precision), lowest, highest)


def nearest(x, precision):
    """x rounded to `precision` significant bits, if that is not 0, and to whole numbers."""
    return significant(x, precision, 1.0) if precision else np.rint(x)


def finite(x):
    """Numbers as float64; a NaN is 0, and an infinity is the largest number."""
    return np.clip(np.nan_to_num(x.astype(np.float64), nan=0), -65504, 65504)


def scaled(codes, exponents, more=0):
    """codes * 2**(exponents + more), exactly."""
    return np.ldexp(codes.astype(np.float64), exponents.astype(np.int64) + more)


def shifted(codes, distance):
    """codes + distance, exactly."""
    return codes + distance


def accumulated(codes, weights, start=None, scale=0, bits=32, units=(0, 0), shift=0):
    """(weights @ codes + start) * 2**-scale, modulo an accumulator, rounded once to binary16.

    Codes and weights are multiples of 2**units[0] and 2**units[1]. A total counts
    2**(units[0] + units[1] - shift). Weights are [rows, columns], or [batch, rows, columns].
    """
    left, right = np.rint(codes * 2.0 ** -units[0]), np.rint(weights * 2.0 ** -units[1])
    most = int(np.abs(left).max(initial=0)), int(np.abs(right).max(initial=0))
    # What 64 bits lose is a multiple of 2**64.
    wide = bits > 64 and most[0] * most[1] * left.shape[-1] << shift >= 1 << 62
    integers = np.frompyfunc(int, 1, 1) if wide or max(most) >= 1 << 63 else np.int64
    totals = integers(left) @ integers(np.swapaxes(right, -1, -2)) << shift
    if start is not None:
        totals = totals + integers(start)
    if bits < 64 or totals.dtype == object:
        half = 1 << bits - 1
        totals = (totals + half & 2 * half - 1) - half
    # Large totals keep 1 for what lies below every rounding point.
    large = (totals >= 1 << 53) | (totals < -1 << 53)
    cut = np.where(large, totals >> 28 | (totals & (1 << 28) - 1 != 0), totals).astype(np.float64)
    return np.ldexp(cut, 28 * large.astype(np.int64) - scale).astype(np.float16)


def softmax(a, fractions, wholes):
    """exp(a) by its sum along the last axis: whole numbers of two tables, rounded once."""
    x = a.astype(np.float64)
    places = np.floor(np.where(np.isfinite(x), x, -65536.0) * 65536).astype(np.int64)
    distance = places.max(-1, keepdims=True) - places  # from the largest, in parts of 2**-16
    base, slope = np.moveaxis(fractions[distance >> 9 & 127].astype(np.int64), -1, 0)
    rows = wholes[np.minimum(distance >> 16, len(wholes) - 1)].astype(np.int64)
    factor, shift = np.moveaxis(rows, -1, 0)
    terms = (base - (slope * (distance & 511) >> 9)) * factor >> shift
    terms = np.where(distance >> 16 < len(wholes), terms, 0)
    quotient, rest = np.divmod(terms << 25, terms.sum(-1, keepdims=True))
    result = np.ldexp(2.0 * quotient + (rest > 0), -26).astype(np.float16)
    undefined = (np.isnan(x) | (x == np.inf)).any(-1) | (x == -np.inf).all(-1)
    return np.where(undefined[..., None], np.float16(np.nan), result)
