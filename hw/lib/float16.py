"""Parts that the binary16 units share: the format on wires, leading zeros, shifts and the rounding step.

An exponent field e and an 11-bit significand s, hidden bit included, make the bits `(e - 1 << 10) + s`: a subnormal,
whose field counts as 1, has no hidden bit and so gets field 0; a significand rounded up to 2048 carries into the field.
"""

from amaranth import *
from amaranth.lib import data

Binary16 = data.StructLayout({"fraction": 10, "exponent": 5, "sign": 1})

INFINITY = 0x7C00
NAN = 0x7E00  #: the only NaN that arithmetic returns


def significand(number):
    """The exponent field of a Binary16 (1 for subnormals) and its 11-bit significand."""
    normal = number.exponent.any()
    return number.exponent | ~normal, Cat(number.fraction, normal)


def smaller(a, b, by_value=None, unless=None):
    """Whether the signs of two Binary16 differ, and whether `a` is the smaller one: by value, where +0 exceeds -0.

    Where there is `by_value` and it is low, magnitudes are compared. Where there is `unless` and it is high, `a` does
    not count as the smaller one.
    """
    differ, less = a.sign ^ b.sign, a.as_value()[:15] < b.as_value()[:15]
    apart, negative = (bit if by_value is None else by_value & bit for bit in (differ, a.sign))
    # Both answers are ready when the magnitudes have been compared.
    if_less, if_not = (Mux(apart, a.sign, answer) for answer in (~negative, negative))
    if unless is not None:
        if_less, if_not = if_less & ~unless, if_not & ~unless
    return differ, Mux(less, if_less, if_not)


def leading_zeros(value):
    """Number of zeros above the highest one, and whether the value is zero; all bits of the count are then set."""
    width = 1 << (len(value) - 1).bit_length()
    return _leading_zeros(Cat(Const(0, width - len(value)), value))


def _leading_zeros(value):
    if len(value) == 1:
        return Cat(), ~value
    half = len(value) // 2
    return joined_zeros(_leading_zeros(value[half:]), _leading_zeros(value[:half]))


def joined_zeros(high, low):
    """What `leading_zeros` returns for a value, from what it returns for both halves of it."""
    (count, no_high), (low_count, no_low) = high, low
    count = Mux(no_high, low_count, count) if len(count) else count  # that of a single bit has no bits
    return Cat(count, no_high), no_high & no_low


def shift_right(value, amount):
    """value >> amount, and whether a 1 was shifted out."""
    lost = Const(0, 1)
    for n in reversed(range(len(amount))):
        step = min(1 << n, len(value))
        lost |= amount[n] & value[:step].any()
        value = Mux(amount[n], value[step:], value)
    return value, lost


def shift_left(value, amount, keep: int):
    """The highest `keep` bits of value << amount, and whether a 1 lies below them; `amount` shifts out only zeros."""
    lost = Const(0, 1)
    for n in reversed(range(len(amount))):
        step, below = 1 << n, max(0, len(value) - keep - (1 << n) + 1)  # `below`: bits out of reach of the next shifts
        last = max(0, below - step)
        lost |= value[:last].any() | (value[last:below].any() & ~amount[n])
        moved = Cat(Const(0, step), value)[:len(value)]
        value = Mux(amount[n], moved[below:], value[below:])
    return value, lost


def rounded(field, value, carry=0):
    """Bits below the sign of a result: `(field + carry << 10) + value`, to nearest, ties to even.

    Args:
        field: The exponent field less one, 5 bits.
        value: 13 bits: the significand, a half bit below it, and a sticky bit for all lower bits.
        carry: Adds one to the field; only with a hidden bit.
    """
    round_up = value[1] & (value[0] | value[2])
    # One adder: hidden bit and carry make 01 or 10 at the field's position.
    return (Cat(value[2:12], field) + Cat(round_up, Const(0, 9), value[12] & ~carry, carry))[:15]
