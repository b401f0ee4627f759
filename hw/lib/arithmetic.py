"""Integer arithmetic that units share: sums without superfluous bits, trees, shifts with rounding, addresses in banks.

Shifts and rounding half away from zero come in pieces, which registers may separate.
"""

from functools import reduce
from operator import or_

from amaranth import *
from concord.hw.lib.pipeline import delay
from concord.spec.numbers.formats import Format

#: Attributes of a memory that is never read and written at the same address in one cycle. Without them, synthesis adds
#: a multiplexer to every block RAM.
UNCHECKED = {"no_rw_check": 1}
_DIGIT = 2  #: Number of bits of a shift amount that one stage handles.


def extremes(fmt: Format) -> tuple[int, int]:
    """The lowest and the highest mantissa."""
    return fmt.lowest, fmt.highest


def within(value, *ends: int):
    """A signed value, reduced to the bits that the integers in `ends` need."""
    bits = max(end.bit_length() if end >= 0 else (~end).bit_length() for end in ends) + 1
    return value[:bits].as_signed()


def adder_tree(m: Module, terms: list):
    """Sum of signed terms; each cycle has one level of adders, through which an odd term goes alone.

    Synthesis turns several adders in series into slower and larger carry-save adders.
    """
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        terms = [*(delay(m, a + b, 1) for a, b in pairs), *(delay(m, odd, 1) for odd in terms[len(terms) & ~1:])]
    return terms[0]


def gated_sum(m: Module, platform, a, x, b, y):
    """(a ? x : 0) + (b ? y : 0) for bits a and b and signed values x and y, in the cells of the platform if it is one.

    Args:
        platform: None, or a platform with a `gated_sum` of its own.
    """
    if platform is not None:
        return platform.gated_sum(m, a, x, b, y)
    return Mux(a, x, 0) + Mux(b, y, 0)


def sum_or_difference(m: Module, platform, a, b, minus, carry=None):
    """a + b, or a - b if the bit `minus` is 1, modulo 2**len(a); a and b have the same number of bits.

    Args:
        platform: None, or a platform with a `sum_or_difference` of its own.
        carry: What is added to a + b, or to a + ~b if `minus` is 1; None for `minus`.
    """
    carry = minus if carry is None else carry
    if platform is not None:
        return platform.sum_or_difference(m, a, b, minus, carry)
    return (a + (b ^ minus.replicate(len(b))) + carry)[:len(a)]


def chosen_sum(m: Module, platform, a, second, x, y):
    """a + x, or a + y if the bit `second` is 1, modulo 2**len(a); all have the same number of bits.

    Args:
        platform: None, or a platform with a `chosen_sum` of its own.
    """
    if platform is not None:
        return platform.chosen_sum(m, a, second, x, y)
    return (a + Mux(second, y, x))[:len(a)]


def loaded_sum(m: Module, platform, load, value, a, b):
    """a + b, or `value` if the bit `load` is 1, modulo 2**len(a); numbers with a sign keep it where they are shorter.

    Args:
        platform: None, or a platform with a `loaded_sum` of its own.
    """
    value, b = (_resized(each, len(a)) for each in (value, b))
    if platform is not None:
        return platform.loaded_sum(m, load, value, a, b)
    return Mux(load, value, a + b)[:len(a)]


def _resized(value, bits: int):
    """A number modulo 2**bits."""
    sign = value[-1] & Const(value.shape().signed)
    return Cat(value, sign.replicate(bits - len(value))) if len(value) < bits else value[:bits]


def shifted_sum(low, high, shift: int, *, minus: bool = False):
    """low + high * 2**shift, or low - high * 2**shift, of signed values; the lowest bits take no adder."""
    rest = low >> shift
    return Cat(low[:shift], rest - high if minus else rest + high).as_signed()


def low_high(value, count: int):
    """(value mod count, value / count); for a `count` that is no power of two, by a product with its reciprocal."""
    bits = (count - 1).bit_length()
    if not count & count - 1:
        return value[:bits], value[bits:]
    shift = len(value) + bits  # so many fraction bits make the quotient exact
    quotient = (value * -(-(1 << shift) // count) >> shift)[:len(value) - bits + 1]
    return (value - quotient * count)[:bits], quotient


def digits(amount_bits: int) -> list[int]:
    """Lowest bit of each digit of a shift amount, from the highest digit down."""
    return list(reversed(range(0, amount_bits, _DIGIT)))


def shift_digit(value, amount, low: int):
    """`value` shifted right by the digit of `amount` that begins at bit `low`, and whether a one was lost."""
    digit = amount[low:low + _DIGIT]
    lost = reduce(or_, ((digit == n) & value[:n << low].any() for n in range(1, 1 << len(digit))))
    return value >> Cat(Const(0, low), digit), lost


def add_carry(a, b, carry):
    """a + b + carry of two signed values, in one adder."""
    total = Cat(carry, a).as_signed() + Cat(carry, b).as_signed()
    return total[1:].as_signed()


def apart(value, shift: int):
    """Whether round(value / 2**shift) is one above the floor, and the rest value - (rounded << shift)."""
    round_up = value[shift - 1] & (~value[-1] | value[:shift - 1].any())
    return round_up, Cat(value[:shift], round_up).as_signed()


def clamp(value, low: int, high: int):
    """`value` limited to low..high."""
    return Mux(value < low, low, Mux(value > high, high, value))


def lesser(a, b):
    """The smaller of two values."""
    return Mux(a < b, a, b)


def greater(a, b):
    """The larger of two values."""
    return Mux(a > b, a, b)


def tree(values: list, function, later=lambda value: value):
    """Reduce all values to one by a function of two values, with `later` after each level."""
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=False)
        values = [later(value) for value in [*(function(*pair) for pair in pairs), *values[len(values) & ~1:]]]
    return values[0]
