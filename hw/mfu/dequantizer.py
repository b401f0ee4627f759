"""Reads entries of VectorRf as binary16 numbers."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.binary16_rounder import Binary16Rounder
from concord.hw.lib.elements import mantissa
from concord.hw.lib.payloads import Mode, lane_group
from concord.spec.numbers.formats import Format


class Dequantizer(wiring.Component):
    """Computes mantissa * 2**(E - (bits - 1)), rounded once to binary16; zero is +0, and an overflow is infinite.

    In integer mode a number is the mantissa, or the mantissa plus the zero point where codes are unsigned.

    Args:
        fmt:   Format of the blocks.
        lanes: Number of elements of a word.

    Members:
        i: In(lane_group). Mantissas and the stored exponent E - e_min. mode: In(Mode). Mode in which they are read.
        o: Out(16 x lanes). Bits of the numbers.

    Timing:
        One word a cycle, `latency` cycles later. Never stalls; reset does nothing.
    """

    latency = Binary16Rounder.latency

    def __init__(self, fmt: Format, lanes: int):
        self.fmt, self.lanes = fmt, lanes
        super().__init__({"i": In(lane_group(fmt, lanes)), "mode": In(Mode), "o": Out(data.ArrayLayout(16, lanes))})

    def elaborate(self, platform):
        m = Module()
        fmt = self.fmt
        highest = fmt.bits - 1 - fmt.e_min
        scale = Mux(self.mode.integer, 0, highest - self.i.exponent)
        for lane, (code, number) in enumerate(zip(self.i.mantissas, self.o, strict=True)):
            rounder = Binary16Rounder(fmt.bits + 1, range(min(0, fmt.bits - 1 - fmt.e_max), max(0, highest) + 1))
            m.submodules[f"rounder{lane}"] = rounder
            m.d.comb += [rounder.value.eq(mantissa(code, fmt) + Mux(self.mode.unsigned, fmt.zero, 0)),
                         rounder.scale.eq(scale), number.eq(rounder.o)]
        return m
