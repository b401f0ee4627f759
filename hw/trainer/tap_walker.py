"""The blocks of a product: taps c0, c1, c2, and the words that they move a view."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.trainer.row_walker import TAP
from concord.hw.trainer.wires import CHIP_ADDRESS, COUNT

#: Numbers of taps.
Taps = data.StructLayout({"n0": COUNT, "n1": TAP, "n2": TAP})
#: Words from one tap of each axis to the next, modulo the words of the chip.
Strides = data.ArrayLayout(CHIP_ADDRESS, 3)


class TapWalker(wiring.Component):
    """Walk through the taps (c0, c1, c2), c2 fastest.

    offset = strides[0] * c0 + strides[1] * c1 + strides[2] * c2, modulo 2**CHIP_ADDRESS

    Members:
        taps: In(Taps). Their numbers, at least 1; held from `start` to the last tap.
        strides: In(Strides). Held alike.
        start: In(1). The next cycle stands on the first tap.
        step: In(1). The next cycle stands on the tap behind this one; behind the last one it is the first one, if
            axis 0 has no stride.
        c1, c2: Out(6). Taps that decide what is inside a view.
        offset: Out(16). Words by which this tap moves the view.
        first, last: Out(1). Whether this tap is the first or the last one.
    """

    def __init__(self):
        super().__init__({
            "taps": In(Taps), "strides": In(Strides), "start": In(1), "step": In(1), "c1": Out(TAP), "c2": Out(TAP),
            "offset": Out(CHIP_ADDRESS), "first": Out(1), "last": Out(1)})

    def elaborate(self, platform):
        m = Module()
        # Each axis keeps the offset at which it stands while faster axes stand on 0.
        c0, slow, middle = Signal(COUNT), Signal(CHIP_ADDRESS), Signal(CHIP_ADDRESS)
        end0, end1, end2 = (count + 1 == number for count, number in zip(
            (c0, self.c1, self.c2), (self.taps.n0, self.taps.n1, self.taps.n2), strict=True))
        after = Signal(CHIP_ADDRESS)
        m.d.comb += [
            after.eq(Mux(~end2, self.offset, Mux(~end1, middle, slow))
                     + Mux(~end2, self.strides[2], Mux(~end1, self.strides[1], self.strides[0]))),
            self.first.eq(~Cat(c0, self.c1, self.c2).any()), self.last.eq(end0 & end1 & end2)]
        for count, offset, moves, ends in ((self.c2, self.offset, 1, end2), (self.c1, middle, end2, end1),
                                          (c0, slow, end2 & end1, end0)):
            with m.If(self.start):
                m.d.sync += [count.eq(0), offset.eq(0)]
            with m.Elif(self.step & moves):
                m.d.sync += [count.eq(Mux(ends, 0, count + 1)), offset.eq(after)]
        return m
