"""IEEE 754 binary16: add, subtract, multiply, maximum, relu and conversion from integers, each rounded once.

Numbers are bit patterns in `uint16` arrays, so that "the same result" means the same bits. Every NaN that arithmetic
makes is 0x7e00.
"""

import numpy as np

NAN = 0x7E00  #: the only NaN that arithmetic returns
INFINITY = 0x7C00
SIGN = 0x8000

_MAGNITUDE = 0x7FFF
_EXACT = 53  # Integers of as many bits are exact in a float64.
_CUT = 12  # Low bits of larger integers that become a sticky bit; the other 63 - 12 bits are exact in a float64.


def to_real(bits):
    """float64[...] of binary16 patterns uint16[...]; exact."""
    return _bits(bits).view(np.float16).astype(np.float64)


def to_bits(values):
    """uint16[...], patterns of real numbers, each rounded once to nearest, ties to even."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.asarray(values, np.float64).astype(np.float16).view(np.uint16)


def add(a, b):
    """a + b, rounded to nearest, ties to even.

    Args:
        a: uint16[...], binary16 bit patterns.
        b: uint16[...], broadcast against `a`.

    Returns:
        uint16[...] bit patterns; any NaN is 0x7e00.
    """
    return _arithmetic(np.add, a, b)


def sub(a, b):
    """a - b, with the arguments, the rounding and the result of `add`."""
    return _arithmetic(np.subtract, a, b)


def mul(a, b):
    """a * b, with the arguments, the rounding and the result of `add`."""
    return _arithmetic(np.multiply, a, b)


def maximum(a, b):
    """The larger of a and b; +0 is larger than -0 in either order, and a NaN on either side gives NaN."""
    a, b = _bits(a), _bits(b)
    larger = np.where(_order(a) > _order(b), a, b)
    return np.where(is_nan(a) | is_nan(b), np.uint16(NAN), larger)


def relu(a):
    """max(a, +0), so that relu(-0) is +0; NaN gives NaN."""
    a = _bits(a)
    return np.where(is_nan(a), np.uint16(NAN), np.where(a >= SIGN, np.uint16(0), a))


def is_nan(a):
    """bool[...], which elements are a NaN of any pattern."""
    return (_bits(a) & np.uint16(_MAGNITUDE)) > INFINITY


def from_integer(value, scale):
    """binary16(value * 2**-scale), rounded once to nearest, ties to even.

    Exact zero is +0; any other value keeps its sign if it rounds to zero. A value beyond the largest finite number
    becomes an infinity.

    Args:
        value: int64[...], or an object array of Python integers of any size.
        scale: int or int[...], -200 to 200.

    Returns:
        uint16[...] bit patterns.
    """
    value, scale = _narrow(np.asarray(value), np.asarray(scale, np.int64))
    if max(value.max(initial=0), ~value.min(initial=0)) >= 1 << _EXACT:
        # Small values are kept. Large values keep a sticky bit for the bits below every rounding point.
        large = (value >= 1 << _EXACT) | (value < -1 << _EXACT)
        sticky = value & (1 << _CUT) - 1 != 0
        value, scale = np.where(large, value >> _CUT | sticky, value), scale - np.where(large, _CUT, 0)
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(value.astype(np.float64), -scale).astype(np.float16).view(np.uint16)


def _narrow(value, scale):
    """The values as int64. Large integers lose low bits, except for a sticky bit, and `scale` changes accordingly."""
    if value.dtype != object:
        return value.astype(np.int64), scale
    excess = np.vectorize(lambda v: max(0, abs(v).bit_length() - 62), otypes=[np.int64])(value)

    def cut(v, bits):
        kept = abs(v) >> bits | (abs(v) & (1 << bits) - 1 != 0)
        return -kept if v < 0 else kept

    return np.vectorize(cut, otypes=[np.int64])(value, excess), scale - excess


def _arithmetic(operation, a, b):
    with np.errstate(all="ignore"):
        result = operation(_bits(a).view(np.float16), _bits(b).view(np.float16))
    result = np.asarray(result).view(np.uint16)
    return np.where(is_nan(result), np.uint16(NAN), result)


def _order(a):
    """uint16 in the order of the values, -0 directly below +0; the result for a NaN has no meaning."""
    return a ^ np.where(a >= SIGN, np.uint16(0xFFFF), np.uint16(SIGN))


def _bits(a):
    a = np.asarray(a)
    if a.dtype != np.uint16:
        raise TypeError(f"binary16 numbers travel as uint16 bit patterns, not {a.dtype}: view a float16 as uint16")
    return a
