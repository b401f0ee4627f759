"""The Lattice ECP5 as a platform: arithmetic in its carry cells that synthesis does not find itself."""

from itertools import zip_longest

from amaranth import *

__all__ = ["Ecp5"]

#: Sum and carry of (a and b) + (c and d) in one half of a CCU2C. The cell's lookup table gives the sum without the
#: carry; where that is 0, the carry is what the table gives for the same a and b while c and d are 0.
_GATED = 0x7888


class Ecp5:
    """The platform argument of an elaboration for an ECP5."""

    def gated_sum(self, m: Module, a, x, b, y):
        """(a ? x : 0) + (b ? y : 0) for bits a and b and signed values x and y, in two carry cells for four bits.

        An adder that comes after gates takes three lookup tables for each bit; this takes one.
        """
        width = max(len(x), len(y)) + 1
        bits = list(zip(_extended(x, width), _extended(y, width), strict=True))
        total, carry = Signal(signed(width)), Const(0, 1)
        for k, (low, high) in enumerate(zip_longest(bits[::2], bits[1::2], fillvalue=(Const(0, 1), Const(0, 1)))):
            sums, out = Signal(2), Signal()
            m.submodules += Instance(
                "CCU2C", p_INIT0=Const(_GATED, 16), p_INIT1=Const(_GATED, 16), p_INJECT1_0="NO", p_INJECT1_1="NO",
                i_CIN=carry, i_A0=a, i_B0=low[0], i_C0=b, i_D0=low[1], i_A1=a, i_B1=high[0], i_C1=b, i_D1=high[1],
                o_S0=sums[0], o_S1=sums[1], o_COUT=out)
            m.d.comb += total[2 * k:2 * k + 2].eq(sums)
            carry = out
        return total


def _extended(value, width: int) -> list:
    """The bits of a signed value, its sign repeated up to `width`."""
    return [value[min(k, len(value) - 1)] for k in range(width)]
