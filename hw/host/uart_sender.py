"""Sends bytes over a serial line."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.host.uart_receiver import PHASE


class UartSender(wiring.Component):
    """Puts bytes on a line: a low start bit, eight bits, the lowest first, and a high stop bit.

    Args:
        step: As in `UartReceiver`.

    Members:
        i: In(stream 8). Bytes.
        tx: Out(1). The line.

    Timing:
        Bytes follow each other without a gap.
    """

    def __init__(self, step: int):
        self.step = step
        super().__init__({"i": In(stream.Signature(8)), "tx": Out(1, init=1)})

    def elaborate(self, platform):
        m = Module()
        bits, left, phase = Signal(9, init=0x1FF), Signal(range(11)), Signal(PHASE)
        following = Signal(PHASE + 1)
        tick = following[PHASE]
        m.d.comb += [following.eq(phase + self.step), self.i.ready.eq((left == 0) | ((left == 1) & tick))]
        with m.If(left != 0):
            m.d.sync += phase.eq(following)
            with m.If(tick):
                m.d.sync += [Cat(self.tx, bits).eq(Cat(bits, Const(1, 1))), left.eq(left - 1)]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [self.tx.eq(0), bits.eq(Cat(self.i.p, Const(1, 1))), left.eq(10)]
            with m.If(left == 0):
                m.d.sync += phase.eq(0)
        return m
