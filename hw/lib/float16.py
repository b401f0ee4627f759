"""What the binary16 units share: the format on wires, counting and shifting, and the step that rounds.

An exponent field e and an 11-bit significand s, hidden bit included, make the bits `(e - 1 << 10) + s`: a subnormal,
whose field counts as 1, has no hidden bit and so gets field 0; a significand rounded up to 2048 carries into the field.
"""

from amaranth import *
from amaranth.lib import data

__all__ = ["INFINITY", "NAN", "Binary16", "leading_zeros", "rounded", "shift_right", "significand"]

Binary16 = data.StructLayout({"fraction": 10, "exponent": 5, "sign": 1})

INFINITY = 0x7C00
NAN = 0x7E00  #: the one NaN that arithmetic returns


def significand(number):
    """The exponent field of a Binary16, 1 for subnormals, and its 11-bit significand."""
    normal = number.exponent.any()
    return number.exponent | ~normal, Cat(number.fraction, normal)


def leading_zeros(value):
    """How many zeros stand above the highest one, and whether there is no one; then all bits of the count are set."""
    width = 1 << (len(value) - 1).bit_length()
    return _leading_zeros(Cat(Const(0, width - len(value)), value))


def _leading_zeros(value):
    if len(value) == 1:
        return Cat(), ~value
    half = len(value) // 2
    (high, no_high), (low, no_low) = _leading_zeros(value[half:]), _leading_zeros(value[:half])
    count = Mux(no_high, low, high) if half > 1 else high  # that of a single bit has no bits
    return Cat(count, no_high), no_high & no_low


def shift_right(value, amount):
    """value >> amount, and whether that drops any one."""
    lost = Const(0, 1)
    for n in reversed(range(len(amount))):
        step = min(1 << n, len(value))
        lost |= amount[n] & value[:step].any()
        value = Mux(amount[n], value[step:], value)
    return value, lost


def rounded(field, value, carry=0):
    """Bits below the sign of a result: `(field + carry << 10) + value`, to nearest, ties to even.

    Args:
        field: The exponent field less one, 5 bits.
        value: 13 bits: the significand, then the bit that halves its unit, then one that stands for all below.
        carry: The field is one more; only with a hidden bit.
    """
    up = value[1] & (value[0] | value[2])
    # One adder: hidden bit and carry make 01 or 10 at the field's place.
    return (Cat(value[2:12], field) + Cat(up, Const(0, 9), value[12] & ~carry, carry))[:15]
