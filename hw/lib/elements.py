"""Elements with exponents of their own: what hardware sees of a code, and binary16 numbers as codes.

A number becomes a code in six steps, which registers separate: its distance from the shared exponent, the leading zeros
of its significand, the significand without them, its shift if it is small, rounding, and clipping. Codes rise with
magnitudes, so that a significand that is rounded up to the next power of two carries into the exponent field.
"""

from typing import NamedTuple

from amaranth import *
from concord.hw.lib.float16 import leading_zeros, significand
from concord.spec.numbers.formats import Format


class Element(NamedTuple):
    """An element as (-1)**sign * significand * 2**shift / 2.

    The half saves an adder: the fields 0 and 1 have the same exponent.

    Attributes:
        sign:        1 bit; 0 for mantissas without an exponent of their own.
        significand: Unsigned, or the signed mantissa.
        shift:       The exponent field, at least 1; a mantissa without exponent has the constant 1.
    """

    sign: Value
    significand: Value
    shift: Value


def element(code, fmt: Format) -> Element:
    """The parts of the code of an element."""
    if not fmt.precision:
        return Element(Const(0, 1), code, Const(1, 1))
    fraction, field = code[:fmt.precision - 1], code[fmt.precision - 1:-1]
    normal = field.any()
    # A power of two has no bit but the hidden one, so that the shift of a zero does not matter.
    shift = field if fmt.precision == 1 else Cat(field[0] | ~normal, field[1:])
    return Element(code[-1], Cat(fraction, normal), shift)


def mantissa(code, fmt: Format):
    """The signed mantissa of the code of an element."""
    if not fmt.precision:
        return code
    sign, bits, shift = element(code, fmt)
    size = (bits << shift)[1:fmt.bits]
    return Mux(sign, -size, size)[:fmt.bits].as_signed()


def magnitude(code, fmt: Format):
    """Bits of a code that are all 0 for 0 alone: without the sign of an element with its own exponent.

    A host may send the code of -0.
    """
    return code[:-1] if fmt.precision else code


def without_minus_zero(codes, fmt: Format):
    """The same codes, and that of 0 instead of -0."""
    return Cat(Cat(code[:-1], code[-1] & code[:-1].any()) for code in codes) if fmt.precision else codes.as_value()


def distance(number, base, fmt: Format):
    """Sign, significand, distance below the highest exponent, and whether the number is infinite."""
    field, bits = significand(number)
    return number.sign, bits, base - field, number.exponent.all()


def zeros(sign, bits, shift, beyond, fmt, unsigned):
    """The same, and the leading zeros of the significand."""
    return sign, bits, leading_zeros(bits)[0], shift, beyond


def normalise(sign, bits, zeros, shift, beyond, fmt, unsigned):
    """The significand, moved until its highest bit is 1, and its exponent field, which may be negative."""
    return sign, (bits << zeros)[:len(bits)], (1 << fmt.field_bits) + 1 - shift - zeros, beyond


def denormalise(sign, bits, field, beyond, fmt, unsigned):
    """The significand with what the rounding loses below it, and the exponent field of the code."""
    below = field < 1
    shift = Mux(below, Mux(field < -fmt.precision, fmt.precision + 1, 1 - field), 0)[:(fmt.precision + 1).bit_length()]
    shifted = Cat(Const(0, fmt.precision + 1), bits) >> shift
    exponent = Mux(below | ~bits[-1], 0, field)[:fmt.field_bits]
    return sign, shifted[:len(bits) + fmt.precision + 1], exponent, beyond | (field >= 1 << fmt.field_bits) & bits[-1]


def nearest(sign, shifted, exponent, beyond, fmt, unsigned):
    """The magnitude of the code, rounded half to even significands, and one bit more for a carry."""
    kept, rest = shifted[-fmt.precision:], shifted[:-fmt.precision]
    round_up = rest[-1] & (rest[:-1].any() | kept[0])
    code = (Cat(kept[:-1], exponent) + round_up)[:fmt.code_bits]
    return sign, code, beyond


def clip(sign, code, beyond, fmt, unsigned):
    """The code, clipped to the highest one; 0 has no sign, and neither have unsigned codes."""
    clipped = Mux(sign & unsigned, 0, code[:-1] | (beyond | code[-1]).replicate(fmt.code_bits - 1))
    return Cat(clipped, sign & clipped.any())
