"""Functions of generated source that round: numbers to binary16, and the quantisers, which make codes.

Codes are floats: whole numbers in integer mode, real numbers mantissa * 2**exponent in block floating point. See
`layout` for `xp` and `np`.
"""

import numpy as np
import numpy as xp
from concord.twin.vocabulary.layout import *


def half(x):
    """Numbers rounded once to binary16, ties to even."""
    return x.astype(np.float16)


def power(x):
    """The largest power of two up to |x|, or 0."""
    if x.dtype == xp.float64:
        return (x.view(xp.int64) & 0x7FF << 52).view(xp.float64)
    return (x.view(xp.int32) & 0xFF << 23).view(xp.float32)


def integers(x, lowest, highest):
    """Codes: numbers rounded to whole numbers, ties to even, and clipped; a NaN is 0."""
    y = xp.clip(cast(x, xp.float32), lowest, highest)
    return straight(y, xp.where(~xp.isnan(y), xp.round(y), 0))


def blocks(x, size, bits, exponents=(-15, 16), rule="frexp", symmetric=False):
    """Codes: mantissas of `bits` bits under one exponent for each block of `size` neighbours."""
    y = finite(x)
    largest = maxima(y, size)
    above = 2 * power(largest)
    if rule == "ceil":
        above = xp.where(largest == above / 2, largest, above)
    above = xp.clip(above, *(2.0**exponent for exponent in exponents))
    unit, limit = spread(above * 2.0 ** (1 - bits), y, size), 2 ** (bits - 1)
    mantissas = xp.clip(xp.round(y / unit), symmetric - limit, limit - 1)
    return straight(cast(x, xp.float64), mantissas * unit)


def finite(x):
    """Numbers as float64; a NaN is 0, and an infinity is the largest number."""
    y = cast(x, xp.float64)
    return xp.clip(xp.where(~xp.isnan(y), y, 0), -65504, 65504)


def maxima(y, size):
    """The largest magnitude of each block of `size` neighbours."""
    y = xp.pad(xp.abs(y), [(0, 0)] * (len(y.shape) - 1) + [(0, -y.shape[-1] % size)])
    return xp.max(xp.reshape(y, (*dimensions(y)[:-1], y.shape[-1] // size, size)), axis=-1)


def spread(of_blocks, like, size):
    """A value of each block for each of its elements."""
    return xp.repeat(of_blocks, size, axis=-1)[..., : like.shape[-1]]


def floats(x, precision, lowest, highest, fraction=0):
    """Codes: multiples of 2**-fraction of `precision` significant bits, clipped; a NaN is 0."""
    y = xp.clip(cast(x, xp.float64), lowest, highest)
    codes = significant(xp.where(~xp.isnan(y), y, 0), precision, 2.0**-fraction)
    return cast(codes, xp.float32)


def float_blocks(x, size, bits, precision, exponents=(-15, 16)):
    """Codes: floats under one exponent for each block of `size` neighbours."""
    y = finite(x)
    above = 2 * power(significant(maxima(y, size), precision, 2.0**-99))
    above = spread(xp.clip(above, *(2.0**exponent for exponent in exponents)), y, size)
    unit, limit = above * 2.0 ** (1 - bits), above * (1 - 2.0**-precision)
    codes = significant(xp.clip(y, -limit, limit), precision, unit)
    return straight(cast(x, xp.float64), codes)


def significant(y, precision, unit):
    """y rounded to multiples of a unit of `precision` significant bits, ties to even."""
    step = xp.maximum(power(y) * 2.0 ** (1 - precision), unit)
    return xp.round(y / step) * step


def numbers(codes):
    """The values of codes, rounded to binary16."""
    return half(codes + xp.zeros_like(codes))
