"""Functions of generated source that only scripts of words need, in numpy; see `numpy_functions` for all others.

They take what no trained network has and any legal program may have: totals that wrap in a wide accumulator, matrices
that the program loads itself, entries that are written in one mode and read in the other.
"""

from functools import reduce

import numpy as np
from concord.twin.vocabulary.numpy_functions import maximum


def words(x, lanes):
    """Vectors cut into words, the last of which is filled up with zeros: [batch, places * words, lanes]."""
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % lanes)])
    return x.reshape(len(x), -1, lanes)


def kept(x, mask):
    """x where the mask is 1, and +0 where it is 0."""
    return np.where(mask != 0, x, x.dtype.type(0))


def pool(x):
    """The largest of several pixels, [batch, places, pixels, channels] to [batch, places, channels]."""
    return reduce(maximum, np.moveaxis(x, 2, 0))


def exponents_of(x, bits, exponents, rule):
    """Exponent of each block, the last axis: [..., block] to [..., 1]."""
    fraction, exponent = np.frexp(np.abs(finite(x)).max(-1, keepdims=True))
    exponent = np.where(fraction == 0, exponents[0], exponent - (fraction == 0.5) * (rule == "ceil"))
    return np.clip(exponent, *exponents).astype(np.float64)


def mantissas_of(x, exponents, bits, symmetric):
    """Mantissas under given exponents."""
    limit = 2 ** (bits - 1)
    return np.clip(np.rint(scaled(finite(x), -exponents, bits - 1)), symmetric - limit, limit - 1)


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
    """(weights @ codes + start) * 2**-scale: whole numbers modulo an accumulator, then rounded once to binary16.

    Codes and weights are multiples of 2**units[0] and 2**units[1]; a total counts 2**(units[0] + units[1] - shift).
    Weights are [rows, columns], or [batch, rows, columns].
    """
    left, right = (np.rint(each * 2.0**-unit) for each, unit in zip((codes, weights), units, strict=True))
    bound = int(np.abs(left).max(initial=0)) * int(np.abs(right).max(initial=0)) * left.shape[-1] << shift
    whole = object if bits > 64 and bound >= 1 << 62 else np.int64  # what 64 bits lose is a multiple of 2**64
    left, right = (each.astype(np.int64).astype(whole) for each in (left, np.swapaxes(right, -1, -2)))
    totals = left @ right << shift
    if start is not None:
        totals = totals + start.astype(np.int64)
    if bits < 64 or whole is object:
        half = 1 << bits - 1
        totals = (totals + half & 2 * half - 1) - half
    # Large totals keep 1 for what lies below every rounding point.
    large = (totals >= 1 << 53) | (totals < -1 << 53)
    cut = np.where(large, totals >> 28 | (totals & (1 << 28) - 1 != 0), totals).astype(np.float64)
    return np.ldexp(cut, 28 * large.astype(np.int64) - scale).astype(np.float16)
