"""IEEE 754 binary16: add, subtract, multiply, maximum, relu and conversion from integers, each rounded once.

Numbers are bit patterns in `uint16` arrays, so that "the same result" means the same bits. Every NaN that arithmetic
makes is 0x7e00.
"""

import numpy as np

NAN = 0x7E00  #: the only NaN that arithmetic returns
INFINITY = 0x7C00
SIGN = 0x8000

_MAGNITUDE = 0x7FFF
_EXACT = 1 << 53  # float64 holds every integer of a smaller magnitude
_CUT = 12  # Low bits of an int64 that become a sticky bit; the other 63 - 12 bits are exact in a float64.


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
    # Values of equal order have equal bits, or are two zeros; then the sign bit is kept only if both have it.
    larger = np.where(_order(a) == _order(b), a & b, larger)
    return np.where(is_nan(a) | is_nan(b), np.uint16(NAN), larger)


def relu(a):
    """max(a, +0), so that relu(-0) is +0; NaN gives NaN."""
    return maximum(a, np.uint16(0))


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
    value, scale = np.asarray(value), np.asarray(scale, np.int64)
    if value.dtype != object and value.size and -_EXACT < value.min() <= value.max() < _EXACT:
        with np.errstate(all="ignore"):  # both steps before the rounding are exact
            return np.ldexp(value.astype(np.float64), -scale).astype(np.float16).view(np.uint16)
    value, scale = _narrow(value, scale)
    magnitude = np.abs(value).view(np.uint64)  # -2**63 stays itself, which uint64 reads as 2**63
    low = magnitude & np.uint64((1 << _CUT) - 1)
    # Small values are kept exactly. Large values keep a sticky bit for the bits below every rounding point.
    large = magnitude >> np.uint64(63 - _CUT) != 0
    magnitude = np.where(large, magnitude >> np.uint64(_CUT) | (low != 0), magnitude).astype(np.int64)
    bits = _round(magnitude, scale - np.where(large, _CUT, 0))
    return bits | np.where(value < 0, np.uint16(SIGN), np.uint16(0))


def _narrow(value, scale):
    """The values as int64. Large integers lose low bits, except for a sticky bit, and `scale` changes accordingly."""
    if value.dtype != object:
        return value.astype(np.int64), scale
    excess = np.vectorize(lambda v: max(0, abs(v).bit_length() - 62), otypes=[np.int64])(value)

    def cut(v, bits):
        kept = abs(v) >> bits | (abs(v) & (1 << bits) - 1 != 0)
        return -kept if v < 0 else kept

    return np.vectorize(cut, otypes=[np.int64])(value, excess), scale - excess


def _round(magnitude, scale):
    """Bits of magnitude * 2**-scale, for int64 magnitudes below 2**53."""
    length = np.frexp(magnitude.astype(np.float64))[1].astype(np.int64)
    unit = np.maximum(length - 11 - scale, -24)  # log2 of one unit in the last place of the result
    drop = np.minimum(unit + scale, 62)
    left, right = np.maximum(-drop, 0), np.maximum(drop, 0)
    floor = (magnitude << left) >> right
    twice_rest = (magnitude << left) - (floor << right) << 1
    one = np.int64(1) << right
    rounded = floor + ((twice_rest > one) | ((twice_rest == one) & (floor & 1 == 1)))
    # `rounded` holds the hidden bit, which carries into the exponent field, as a significand of 2048 does.
    bits = np.minimum((unit + 24 << 10) + rounded, INFINITY)
    return np.where(magnitude == 0, 0, bits).astype(np.uint16)


def _arithmetic(operation, a, b):
    with np.errstate(all="ignore"):
        result = operation(_bits(a).view(np.float16), _bits(b).view(np.float16))
    result = np.asarray(result).view(np.uint16)
    return np.where(is_nan(result), np.uint16(NAN), result)


def _order(a):
    """Integers in the order of the values. The two zeros are equal; the result for a NaN has no meaning."""
    magnitude = (a & np.uint16(_MAGNITUDE)).astype(np.int32)
    return np.where(a >= SIGN, -magnitude, magnitude)


def _bits(a):
    a = np.asarray(a)
    if a.dtype != np.uint16:
        raise TypeError(f"binary16 numbers travel as uint16 bit patterns, not {a.dtype}: view a float16 as uint16")
    return a
