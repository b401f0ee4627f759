"""Shifts with rounding half away from zero, as stages that registers may separate."""

from functools import reduce
from operator import or_

from amaranth import *

_DIGIT = 2  #: Number of bits of a shift amount that one stage handles.


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


def apart(value, places: int):
    """Whether round(value / 2**places) is one above the floor, and the rest value - (rounded << places)."""
    round_up = value[places - 1] & (~value[-1] | value[:places - 1].any())
    return round_up, Cat(value[:places], round_up).as_signed()


def clamp(value, low: int, high: int):
    """`value` limited to low..high."""
    return Mux(value < low, low, Mux(value > high, high, value))


def tree(values: list, function, later=lambda value: value):
    """Reduce all values to one by a function of two values, with `later` after each level."""
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=False)
        values = [later(value) for value in [*(function(*pair) for pair in pairs), *values[len(values) & ~1:]]]
    return values[0]
