"""Elements that have exponents of their own: rounding to significant bits, and the codes in which they are stored."""

import numpy as np
from concord.spec.numbers.formats import Format


def nearest(values, fmt: Format):
    """Round to the nearest mantissa of a format, ties to even, without clipping.

    With a precision p, a magnitude a is rounded to a multiple of 2**s, s = max(0, floor(log2 a) - (p - 1)), as IEEE 754
    does with subnormals. Of two powers of two (p = 1), a value half way between them takes the larger, and 1/2 takes 0.

    Args:
        values: float64[...], mantissas with fractions.
        fmt:    Format of the mantissas.

    Returns:
        float64[...], integers.
    """
    if not fmt.precision:
        return np.rint(values)
    exponent = np.frexp(values)[1].astype(np.int64)  # 2**(exponent - 1) <= a < 2**exponent; 0 for 0
    step = np.ldexp(1.0, np.maximum(0, exponent - fmt.precision))
    return np.rint(values / step) * step


def representable(mantissas, fmt: Format) -> bool:
    """Whether all integers are mantissas of a format."""
    mantissas = np.asarray(mantissas)
    if not mantissas.size:
        return True
    if not fmt.lowest <= mantissas.min() <= mantissas.max() <= fmt.highest:
        return False
    return not fmt.precision or bool((nearest(mantissas.astype(np.float64), fmt) == mantissas).all())


def encode(mantissas, fmt: Format):
    """Codes of mantissas, int64[...] of `code_bits` bits: two's complement, or sign, field and fraction.

    With a precision p, field 0 means the fraction itself, and field f > 0 means (2**(p-1) + fraction) * 2**(f-1).
    """
    mantissas = np.asarray(mantissas, np.int64)
    if not fmt.precision:
        return mantissas & (1 << fmt.bits) - 1
    size, below = np.abs(mantissas), fmt.precision - 1
    exponent = np.frexp(size.astype(np.float64))[1].astype(np.int64)
    field = np.maximum(0, exponent - below)
    fraction = (size >> np.maximum(field - 1, 0)) & (1 << below) - 1
    return (mantissas < 0).astype(np.int64) << fmt.code_bits - 1 | field << below | fraction


def decode(codes, fmt: Format):
    """Mantissas int64[...] of codes that `encode` made; the code of -0 is 0."""
    codes = np.asarray(codes, np.int64)
    if not fmt.precision:
        return codes - (codes >> fmt.bits - 1 << fmt.bits)
    below = fmt.precision - 1
    field, fraction = codes >> below & (1 << fmt.field_bits) - 1, codes & (1 << below) - 1
    size = fraction + (field > 0) * (1 << below) << np.maximum(field - 1, 0)
    return np.where(codes >> fmt.code_bits - 1 & 1, -size, size)
