"""exp(-x) in fixed point, with integers only, so that tables made of it are equal on every computer."""

from functools import cache

ONE = 1 << 96  #: 1.0: far finer than any table that is made of it


def exp_minus(x: int) -> int:
    """exp(-x) of x >= 0, both in units of 1 / ONE: a power of two times a short series."""
    halvings, rest = divmod(x, _ln2())
    total, term, n = 0, ONE, 0
    while term:
        total += -term if n % 2 else term
        n += 1
        term = term * rest // ONE // n
    return total >> halvings


@cache
def _ln2():
    """ln 2: the sum of 1 / (n * 2**n)."""
    return sum((ONE << 8) // (n << n) for n in range(1, 110)) >> 8
