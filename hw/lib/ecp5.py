"""The Lattice ECP5 as a platform: arithmetic in its carry cells that synthesis does not find itself."""

from amaranth import *

#: Lookup tables of a half of a CCU2C with the inputs a, b, c and d. A table gives the sum bit without the carry; where
#: that is 0, the carry out is what the table gives for the same a and b while c and d are 0.
_GATED = 0x7888  # (a and b) + (c and d)
_PLUS_XOR = 0xA55A  # a + (c xor d)


class Ecp5:
    """The platform argument of an elaboration for an ECP5. A bit of a sum takes half a carry cell, one lookup table."""

    def gated_sum(self, m: Module, a, x, b, y):
        """(a ? x : 0) + (b ? y : 0) for bits a and b and signed values x and y, one bit wider than these."""
        width = max(len(x), len(y)) + 1
        bits = [(a, one, b, other) for one, other in zip(_extended(x, width), _extended(y, width), strict=True)]
        return _chain(m, _GATED, bits, Const(0, 1)).as_signed()

    def sum_or_difference(self, m: Module, a, b, minus):
        """a + b, or a - b if `minus`, modulo 2**len(a); a and b have the same number of bits."""
        return _chain(m, _PLUS_XOR, [(one, Const(0, 1), other, minus) for one, other in zip(a, b, strict=True)], minus)


def _chain(m, table, bits, carry):
    """Sum bits of a chain of carry cells with the inputs `bits` and a carry into the lowest bit."""
    total = Signal(len(bits))
    for k in range(0, len(bits), 2):
        sums, out = Signal(2), Signal()
        halves = [*bits[k:k + 2], (Const(0, 1),) * 4][:2]
        m.submodules += Instance(
            "CCU2C", p_INIT0=Const(table, 16), p_INIT1=Const(table, 16), p_INJECT1_0="NO", p_INJECT1_1="NO",
            **{f"i_{name}{half}": bit for half, names in enumerate(halves)
               for name, bit in zip("ABCD", names, strict=True)},
            i_CIN=carry, o_S0=sums[0], o_S1=sums[1], o_COUT=out)
        m.d.comb += total[k:k + 2].eq(sums)
        carry = out
    return total


def _extended(value, width: int) -> list:
    """The bits of a signed value, its sign repeated up to `width`."""
    return [value[min(k, len(value) - 1)] for k in range(width)]
