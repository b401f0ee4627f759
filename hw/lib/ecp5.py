"""The Lattice ECP5 as a platform: arithmetic in its carry cells that synthesis does not find itself."""

from amaranth import *

#: Lookup tables of a half of a CCU2C with the inputs a, b, c and d. A table gives the sum bit without the carry; where
#: that is 0, the carry out is what the table gives for the same a and b while c and d are 0.
_GATED = 0x7888  # (a and b) + (c and d)
_PLUS_XOR = 0xA55A  # a + (c xor d)
_PLUS_CHOSEN = 0x569A  # a + (b ? d : c)
_LOADED = 0xDE12  # b ? d : a + c
_GENERATED = 0x000A  # with d = 1: no sum, and a is the carry out, whatever comes in


class Ecp5:
    """The platform argument of an elaboration for an ECP5. A bit of a sum takes half a carry cell, one lookup table."""

    def gated_sum(self, m: Module, a, x, b, y):
        """(a ? x : 0) + (b ? y : 0) for bits a and b and signed values x and y, one bit wider than these."""
        width = max(len(x), len(y)) + 1
        bits = [(a, one, b, other) for one, other in zip(_extended(x, width), _extended(y, width), strict=True)]
        return _chain(m, _GATED, bits, Const(0, 1)).as_signed()

    def sum_or_difference(self, m: Module, a, b, minus, carry):
        """a + carry + (minus ? ~b : b), modulo 2**len(a); a and b have the same number of bits."""
        return _chain(m, _PLUS_XOR, [(one, Const(0, 1), other, minus) for one, other in zip(a, b, strict=True)], carry)

    def chosen_sum(self, m: Module, a, second, x, y):
        """a + (second ? y : x), modulo 2**len(a); all have the same number of bits."""
        return _chain(m, _PLUS_CHOSEN, [(one, second, *two) for one, *two in zip(a, x, y, strict=True)], Const(0, 1))

    def loaded_sum(self, m: Module, load, value, a, b):
        """load ? value : a + b, modulo 2**len(a); all have the same number of bits. A load makes no carries."""
        bits = [(one, load, other, new) for one, other, new in zip(a, b, value, strict=True)]
        return _chain(m, _LOADED, bits, Const(0, 1))


def _chain(m, table, bits, carry):
    """Sum bits of a chain of carry cells with the inputs `bits` and a carry into the lowest bit.

    Where the number of bits is odd, the spare half of a cell comes first and makes the carry, so that none is brought
    in from outside, which would take a cell of its own; the last cell has no carry out, for the same reason.
    """
    halves = [(table, *bit) for bit in bits]
    first = len(halves) % 2
    if first:
        halves.insert(0, (_GENERATED, carry, Const(0, 1), Const(0, 1), Const(1, 1)))
    sums, carry = Signal(len(halves)), None if first else carry
    for k in range(0, len(halves), 2):
        out = Signal() if k + 2 < len(halves) else None
        m.submodules += Instance(
            "CCU2C", p_INJECT1_0="NO", p_INJECT1_1="NO",
            **{f"p_INIT{half}": Const(halves[k + half][0], 16) for half in range(2)},
            **{f"i_{name}{half}": bit for half in range(2)
               for name, bit in zip("ABCD", halves[k + half][1:], strict=True)},
            **({} if carry is None else {"i_CIN": carry}), **({} if out is None else {"o_COUT": out}),
            o_S0=sums[k], o_S1=sums[k + 1])
        carry = out
    return sums[first:]


def _extended(value, width: int) -> list:
    """The bits of a signed value, its sign repeated up to `width`."""
    return [value[min(k, len(value) - 1)] for k in range(width)]
