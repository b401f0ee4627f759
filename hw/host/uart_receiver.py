"""Receives bytes from a serial line."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

PHASE = 20  #: Bits of the position inside a bit of the line, as a fraction.


def uart_step(clock: float, baud: int) -> int:
    """The length of a cycle of a clock in MHz in bits of a line, times 2**PHASE.

    Raises:
        ValueError: a bit is shorter than four cycles.
    """
    if clock * 1e6 < 4 * baud:
        raise ValueError(f"a bit of a line of {baud:,} baud must take four clock cycles or more: choose a clock of at "
                         f"least {4e-6 * baud:g} MHz, or a lower baud rate")
    return round(baud / (clock * 1e6) * (1 << PHASE))


class UartReceiver(wiring.Component):
    """Takes bytes from a line: a low start bit, eight bits, the lowest first, and a high stop bit.

    Each bit is sampled once, half a bit after its beginning. A byte without a stop bit is dropped.

    Args:
        step: Length of a clock cycle in bits of the line, times 2**PHASE; a bit has four cycles or more.

    Members:
        rx: In(1). The line, from another clock.
        byte: Out(8). The byte that has come, in the cycle in which `valid` is high.
    """

    def __init__(self, step: int):
        self.step = step
        super().__init__({"rx": In(1, init=1), "valid": Out(1), "byte": Out(8)})

    def elaborate(self, platform):
        m = Module()
        rx, before = Signal(init=1), Signal(init=1)
        m.submodules.synchronizer = FFSynchronizer(self.rx, rx, init=1)
        phase, left = Signal(PHASE), Signal(range(11))
        following = Signal(PHASE + 1)
        m.d.comb += following.eq(phase + self.step)
        m.d.sync += [before.eq(rx), self.valid.eq(0)]
        with m.If(left == 0):
            m.d.sync += [phase.eq(1 << PHASE - 1), left.eq(Mux(before & ~rx, 10, 0))]
        with m.Else():
            m.d.sync += phase.eq(following)
            with m.If(following[PHASE]):
                m.d.sync += left.eq(Mux((left == 10) & rx, 0, left - 1))  # a start bit that is high was a disturbance
                with m.If(left == 1):
                    m.d.sync += self.valid.eq(rx)
                with m.Else():
                    m.d.sync += self.byte.eq(Cat(self.byte[1:], rx))
        return m
