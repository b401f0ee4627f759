"""Sums of signed integers: trees of adders, gated terms, and results without superfluous bits."""

from amaranth import *
from concord.hw.lib.pipeline import delay
from concord.spec.numbers.formats import Format


def extremes(fmt: Format) -> tuple[int, int]:
    """The lowest and the highest mantissa."""
    return fmt.lowest, fmt.highest


def within(value, *ends: int):
    """A signed value, reduced to the bits that the integers in `ends` need."""
    bits = max(end.bit_length() if end >= 0 else (~end).bit_length() for end in ends) + 1
    return value[:bits].as_signed()


def adder_tree(m: Module, terms: list):
    """Sum of signed terms, as many as a power of two; each cycle has one level of adders.

    Synthesis turns several adders in series into slower and larger carry-save adders.
    """
    while len(terms) > 1:
        terms = [delay(m, a + b, 1) for a, b in zip(terms[::2], terms[1::2], strict=True)]
    return terms[0]


def gated_sum(m: Module, platform, a, x, b, y):
    """(a ? x : 0) + (b ? y : 0) for bits a and b and signed values x and y, in the cells of the platform if it is one.

    Args:
        platform: None, or a platform with a `gated_sum` of its own.
    """
    if platform is not None:
        return platform.gated_sum(m, a, x, b, y)
    return Mux(a, x, 0) + Mux(b, y, 0)


def sum_or_difference(m: Module, platform, a, b, minus):
    """a + b, or a - b if the bit `minus` is 1, modulo 2**len(a); a and b have the same number of bits.

    Args:
        platform: None, or a platform with a `sum_or_difference` of its own.
    """
    if platform is not None:
        return platform.sum_or_difference(m, a, b, minus)
    return (a + (b ^ minus.replicate(len(b))) + minus)[:len(a)]


def shifted_sum(low, high, places: int, *, minus: bool = False):
    """low + high * 2**places, or low - high * 2**places, of signed values; the lowest bits take no adder."""
    rest = low >> places
    return Cat(low[:places], rest - high if minus else rest + high).as_signed()
