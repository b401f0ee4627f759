"""Makes payloads of one width of payloads of another width."""

from math import gcd

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class Gearbox(wiring.Component):
    """Takes bits in payloads of one width, and gives them in the same order in payloads of another width.

    Bit 0 of a payload is its first bit. Bits that do not fill a payload wait for the bits that follow them.

    Args:
        in_bits:  Number of bits of a payload in.
        out_bits: Number of bits of a payload out.

    Members:
        i: In(stream of in_bits). Payloads in. `ready` depends on neither `clear` nor the output.
        o: Out(stream of out_bits). Payloads out, from registers.
        clear: In(1). Drops all bits inside, `o` included, and the payload that `i` takes in this cycle. A payload that
            `o` hands over in this cycle counts as handed over.

    Timing:
        One payload a cycle on the side that has the narrower payloads; latency 2 cycles.
    """

    def __init__(self, in_bits: int, out_bits: int):
        self.step = gcd(in_bits, out_bits)
        self.taken, self.given = in_bits // self.step, out_bits // self.step  # steps of a payload on each side
        super().__init__({"i": In(stream.Signature(in_bits)), "o": Out(stream.Signature(out_bits)), "clear": In(1)})

    @property
    def payloads(self) -> int:
        """Payloads that it holds before the output: so many that neither side waits for the other at full rate."""
        return -(-(self.given - 1) // self.taken) + 2

    def elaborate(self, platform):
        m = Module()
        # Payloads move in at the top of a window, which needs no multiplexers; one shifter finds those bits there that
        # come next, `at` steps from the bottom. The window has room when its lowest payload has been given.
        window, steps = Signal(len(self.i.p) * self.payloads, reset_less=True), self.payloads * self.taken
        at = Signal(range(steps + 1), init=steps)
        taken, moved = Signal(), Signal()
        m.d.comb += [self.i.ready.eq(at >= self.taken), taken.eq(self.i.valid & self.i.ready),
                     moved.eq((at <= steps - self.given) & (~self.o.valid | self.o.ready))]
        m.d.sync += at.eq(at + Mux(moved, self.given, 0) - Mux(taken, self.taken, 0))
        with m.If(taken):
            m.d.sync += window.eq(Cat(window, self.i.p)[len(self.i.p):])
        with m.If(moved):
            m.d.sync += [self.o.p.eq(self._shifted(window, at)), self.o.valid.eq(1)]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(self.clear):
            m.d.sync += [at.eq(steps), self.o.valid.eq(0)]
        return m

    def _shifted(self, window, at):
        """The bits of a payload out that begin `at` steps above the bottom of the window."""
        for k in reversed(range(len(at))):
            most = len(self.o.p) + self.step * ((1 << k) - 1)  # bits that the shifts to come can reach
            window = Mux(at[k], window[self.step << k:], window)[:most]
        return window
