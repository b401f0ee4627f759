"""Functions of generated source that only scripts of words need.

They take what no trained network has and any legal program may have: matrices that the program loads itself, entries
that are written in one mode and read in the other. See `layout` for `xp` and `np`.
"""

from functools import reduce

import numpy as np
import numpy as xp
from concord.twin.vocabulary.numpy_functions import *


def words(x, lanes):
    """Vectors cut into words, filled up with zeros: [batch, positions * words, lanes]."""
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % lanes)])
    return x.reshape(len(x), np.prod(x.shape[1:]) // lanes, lanes)


def kept(x, mask):
    """x where the mask is 1, and +0 where it is 0."""
    return xp.where(mask != 0, x, 0)


def pool(x):
    """The largest pixel of [batch, positions, pixels, channels], channel by channel."""
    return reduce(maximum, xp.moveaxis(x, 2, 0))


def totals(x):
    """The sum of the elements of words [..., words, lanes] and of those of the words before, rounded once."""
    sums = xp.cumsum(xp.sum(cast(x, xp.float64), axis=-1, keepdims=True), axis=-2)
    once = half(xp.where(sums != 0, sums, 0))
    return xp.broadcast_to(once, dimensions(x))


def exponents_of(x, exponents, rule, precision=0):
    """Exponent of each block, the last axis: [..., block] to [..., 1]."""
    largest = xp.max(xp.abs(finite(x)), axis=-1, keepdims=True)
    fraction, exponent = xp.frexp(largest)
    exponent = xp.where((fraction == 0.5) & (rule == "ceil"), exponent - 1, exponent)
    if precision:  # magnitudes that round up to a power of two
        up = fraction >= 1 - 2.0 ** -(precision + 1)
        exponent = xp.where(up, exponent + 1, exponent)
    exponent = xp.clip(xp.where(largest != 0, exponent, exponents[0]), *exponents)
    return cast(exponent, xp.float64)


def mantissas_of(x, exponents, bits, lowest, highest, precision=0):
    """Mantissas under given exponents."""
    return xp.clip(nearest(scaled(finite(x), -exponents, bits - 1), precision), lowest, highest)


def nearest(x, precision):
    """x rounded to `precision` significant bits, if that is not 0, and to whole numbers."""
    return significant(x, precision, 1.0) if precision else xp.round(x)


def scaled(codes, exponents, more=0):
    """codes * 2**(exponents + more), exactly."""
    return np.ldexp(codes.astype(np.float64), exponents.astype(np.int64) + more)


def shifted(codes, distance):
    """codes + distance, exactly."""
    return codes + distance
