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
        apart:    The two sides have registers between them: `i.ready` depends on neither `o.ready` nor `skip`.

    Members:
        i: In(stream of in_bits). Payloads in.
        o: Out(stream of out_bits). Payloads out, which may come from `i` in the same cycle.
        skip: In(1). With a payload that `o` hands over in this cycle, the rest of that payload in is dropped which has
            its last bit: the next payload out begins with a payload in.

    Timing:
        One payload a cycle on the side that has the narrower payloads. No latency where a payload in has a whole number
        of payloads out and the sides are not `apart`, else 1 cycle.
    """

    def __init__(self, in_bits: int, out_bits: int, *, apart: bool = False):
        self.step, self.apart = gcd(in_bits, out_bits), apart
        self.taken, self.given = in_bits // self.step, out_bits // self.step  # steps of a payload on each side
        super().__init__({"i": In(stream.Signature(in_bits)), "o": Out(stream.Signature(out_bits)), "skip": In(1)})

    def elaborate(self, platform):
        m = Module()
        if self.apart or min(self.taken, self.given) > 1:
            self._window(m)
        elif self.given == 1:
            self._pieces(m)
        else:
            self._joined(m)
        return m

    def _pieces(self, m):
        """Choose the pieces of a payload in, which waits at the input meanwhile."""
        index, last, i, o = Signal(range(max(2, self.taken))), Signal(), self.i, self.o
        m.d.comb += [last.eq(self.skip | (index == self.taken - 1)), o.valid.eq(i.valid), i.ready.eq(o.ready & last),
                     o.p.eq(i.p.word_select(index, self.step) if self.taken > 1 else i.p)]
        if self.taken > 1:
            with m.If(o.valid & o.ready):
                m.d.sync += index.eq(Mux(last, 0, index + 1))

    def _joined(self, m):
        """Gather whole payloads in."""
        gathered, count = Signal(len(self.o.p), reset_less=True), Signal(range(self.given + 1))
        taken, full, i, o = Signal(), Signal(), self.i, self.o
        m.d.comb += [full.eq(count == self.given), o.valid.eq(full), o.p.eq(gathered), i.ready.eq(~full | o.ready),
                     taken.eq(i.valid & i.ready)]
        m.d.sync += count.eq(Mux(full & o.ready, 0, count) + taken)
        with m.If(taken):
            m.d.sync += gathered.eq(Cat(gathered, i.p)[self.step:])

    def _window(self, m):
        """Find payloads out among the bits of several payloads in."""
        # Payloads move in at the top of a window, which needs no multiplexers; one shifter finds those bits there that
        # come next, `at` steps from the bottom. The window has room when its lowest payload has been given; it holds so
        # many payloads that neither side waits for the other at full rate.
        i, o, payloads = self.i, self.o, -(-(self.given - 1) // self.taken) + 2
        window, steps = Signal(len(i.p) * payloads, reset_less=True), payloads * self.taken
        at, after = Signal(range(steps + 1), init=steps), Signal(range(steps + 1))
        taken, moved = Signal(), Signal()
        m.d.comb += [i.ready.eq(at >= self.taken), taken.eq(i.valid & i.ready), o.valid.eq(at <= steps - self.given),
                     moved.eq(o.valid & o.ready), o.p.eq(self._shifted(window, at)), after.eq(at)]
        with m.If(moved):
            m.d.comb += after.eq(self._begin(at, payloads))
        m.d.sync += at.eq(after - Mux(taken, self.taken, 0))
        with m.If(taken):
            m.d.sync += window.eq(Cat(window, i.p)[len(i.p):])

    def _begin(self, at, payloads: int):
        """Where the payload out begins that follows the one at `at`."""
        following = at + self.given
        begin = Const(0)  # of the payload in that is next
        for k in range(payloads):
            begin = Mux(following > k * self.taken, (k + 1) * self.taken, begin)
        return Mux(self.skip, begin, following)

    def _shifted(self, window, at):
        """The bits of a payload out that begin `at` steps above the bottom of the window."""
        for k in reversed(range(len(at))):
            most = len(self.o.p) + self.step * ((1 << k) - 1)  # bits that the shifts to come can reach
            window = Mux(at[k], window[self.step << k:], window)[:most]
        return window
