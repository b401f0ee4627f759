"""Counts integers that do not fit a range, as golden.mvm.overflow.misfits does."""

from operator import add

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import tree
from concord.hw.lib.pipeline import delay_control

EXCESS = 8  #: Number of bits of an excess.


class OverflowCounter(wiring.Component):
    """Counts the integers that do not fit `bits` bits signed, and the bits that the widest of them lacks.

    Args:
        count: Number of integers in one cycle.
        width: Number of bits of each integer.
        bits:  Number of bits of the range.

    Members:
        valid: In(1). `values` hold integers in this cycle.
        used: In(range(count + 1)). Number of integers that count, from the first.
        values: In(signed(width)[count]). The integers.
        misfits: Out. Number of integers that do not fit; 0 where not valid.
        excess: Out. Number of bits that the widest integer lacks.

    Timing:
        `misfits` and `excess` follow by `latency` cycles.
    """

    latency = 2

    def __init__(self, count: int, width: int, bits: int):
        self.count, self.width, self.bits = count, width, bits
        super().__init__({
            "valid": In(1), "used": In(range(count + 1)), "values": In(data.ArrayLayout(signed(width), count)),
            "misfits": Out(range(count + 1)), "excess": Out(EXCESS)})

    def elaborate(self, platform):
        m = Module()
        spare = max(0, self.width - self.bits)  # bits above the range's sign
        above = [Signal(spare, name=f"above{k}") for k in range(self.count)]
        valid = delay_control(m, self.valid, 1)
        for k, (bits, value) in enumerate(zip(above, self.values, strict=True)):
            beyond = value.as_unsigned()[self.bits - 1:-1] ^ value[-1].replicate(spare) if spare else Const(0, 0)
            m.d.sync += bits.eq(Mux(self.used > k, beyond, 0))
        m.d.sync += [self.misfits.eq(Mux(valid, tree([bits.any() for bits in above], add), 0)), self.excess.eq(0)]
        for k in range(spare):
            with m.If(valid & Cat(bits[k] for bits in above).any()):
                m.d.sync += self.excess.eq(k + 1)
        return m
