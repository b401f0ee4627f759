"""Quantiser: binary16 to blocks of mantissas under one exponent, or to integers."""

from functools import lru_cache

import numpy as np
from concord.golden.mvm import elements
from concord.spec.numbers.formats import Format, Rule

_LARGEST = 65504.0  # largest finite binary16


def invalid(bits):
    """Whether any of the binary16 patterns is a NaN or an infinity, which sets a sticky flag."""
    return bool(((np.asarray(bits) & np.uint16(0x7C00)) == 0x7C00).any())


def quantize_block(bits, fmt: Format):
    """Quantise blocks: mantissa = clip(round(x * 2**((b - 1) - E)), lowest, highest), half to even.

    A NaN counts as 0, an infinity as the largest finite value. A block of zeros has the smallest exponent. Of a format
    with a precision, `round` keeps as many significant bits, and E is that of the largest magnitude so rounded.

    Args:
        bits: uint16[..., n], binary16 patterns; each row of n is one block.
        fmt:  Format of the result.

    Returns:
        int64[..., n] mantissas and int64[...] exponents E.

    Source: numerics.md of the specification, block floating point.
    """
    return quantize_reals(_finite(bits), fmt)


def quantize_reals(value, fmt: Format):
    """Compute `quantize_block` of finite numbers float64[..., n] that need not be binary16."""
    exponent = np.clip(_exponent(np.abs(value).max(-1), fmt), fmt.e_min, fmt.e_max)
    # A product with a power of two is exact in float64.
    scaled = value * np.ldexp(1.0, fmt.bits - 1 - exponent)[..., None]
    return np.clip(elements.nearest(scaled, fmt), fmt.lowest, fmt.highest).astype(np.int64), exponent


def quantize_integer(bits, fmt: Format, *, unsigned: bool):
    """Quantise to integers: round half to even, then clip. A NaN counts as 0, and an infinity clips.

    Of a format with a precision, the integers are its mantissas, and unsigned codes are those from 0 up.

    Args:
        bits:     uint16[...], binary16 patterns.
        fmt:      Format whose mantissas hold the integers.
        unsigned: Whether codes are 0..levels, stored as code - zero, instead of lowest..highest.

    Returns:
        int64[...] integers as they are stored.

    Source: numerics.md of the specification, integer mode.
    """
    return _integers(fmt, bool(unsigned))[_checked(bits)]


@lru_cache(maxsize=16)
def _integers(fmt: Format, unsigned: bool):
    """int64[65536], the integer of every binary16 pattern."""
    value = elements.nearest(np.clip(_values(np.arange(1 << 16, dtype=np.uint16)), -(2.0**40), 2.0**40), fmt)
    low, high = (0, fmt.levels) if unsigned else (fmt.lowest, fmt.highest)
    integers = np.clip(value, low, high).astype(np.int64) - fmt.zero * unsigned
    integers.flags.writeable = False
    return integers


def quantize(bits, fmt: Format, *, integer: bool, unsigned: bool = False):
    """Quantise native vectors as memories hold them.

    Args:
        bits:     uint16[..., N], binary16 patterns.
        fmt:      Format of the mantissas.
        integer:  Whether the vectors become integers, not blocks.
        unsigned: Whether these integers are unsigned codes.

    Returns:
        int64[..., N] mantissas and int64[...] stored exponents E - e_min, which are 0 for integers.
    """
    if integer:
        mantissas = quantize_integer(bits, fmt, unsigned=unsigned)
        return mantissas, np.zeros(mantissas.shape[:-1], np.int64)
    mantissas, exponents = quantize_block(bits, fmt)
    return mantissas, exponents - fmt.e_min


def split(x, block: int):
    """Pad the last axis with zeros and cut it into blocks: [..., n] to [..., ceil(n / block), block]."""
    count = -(-x.shape[-1] // block)
    padded = np.zeros((*x.shape[:-1], count * block), x.dtype)
    padded[..., : x.shape[-1]] = x
    return padded.reshape(*x.shape[:-1], count, block)


def _checked(bits):
    bits = np.asarray(bits)
    if bits.dtype != np.uint16:
        raise TypeError(f"binary16 numbers travel as uint16 bit patterns, not {bits.dtype}: view a float16 as uint16")
    return bits


def _values(bits):
    """float64 values, NaN as 0."""
    values = _checked(bits).view(np.float16).astype(np.float64)
    np.copyto(values, 0.0, where=np.isnan(values))
    return values


def _finite(bits):
    return np.clip(_values(bits), -_LARGEST, _LARGEST)


def _exponent(largest, fmt: Format):
    """int64[...] exponents of blocks from their largest magnitudes; that of a zero block clamps to the smallest."""
    fraction, exponent = np.frexp(largest)  # largest = fraction * 2**exponent, 1/2 <= fraction < 1
    exponent = exponent.astype(np.int64) - ((fraction == 0.5) & (fmt.rule == Rule.CEIL))
    if fmt.precision:  # magnitudes that round up to a power of two
        exponent += fraction >= 1 - 2.0 ** -(fmt.precision + 1)
    return np.where(largest == 0, -128, exponent)
