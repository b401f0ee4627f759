"""Event and time counters: golden.host.counters in hardware, with the counters of cycles."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from concord.spec.registers import Counter

__all__ = ["EventCounters"]

BITS = 32  #: Number of bits of a counter.
_REST = 3  #: Cycles after a read in which no other read is taken.
MAXIMA = (Counter.EXCESS_PARTIAL, Counter.EXCESS_PRODUCT, Counter.EXCESS_OUTPUT)  #: They hold the largest value.


class EventCounters(wiring.Component):
    """Saturating counters of 32 bits, all of which may grow in every cycle.

    Args:
        widths: Number of bits of each counter's increment in one cycle, or of the value of a maximum.

    Members:
        add: In({name in lower case: bits}). Increment of each counter in this cycle, or the value for a maximum.
        clear: In(1). Sets all counters to 0 and ignores `add` in this cycle.
        counter: In(stream index). Request to read a counter of `spec.registers.Counter`. Not taken while clearing.
        count: Out(32). Value of that counter, in the next cycle, with all increments before the request was taken.

    Timing:
        One read every 4 cycles. A `clear` or a reset, which also clears, delays reads by one cycle for each counter.
    """

    def __init__(self, widths: dict[Counter, int]):
        self.widths = widths
        super().__init__({
            "add": In(data.StructLayout({counter.name.lower(): bits for counter, bits in widths.items()})),
            "clear": In(1),
            "counter": In(stream.Signature(range(len(Counter)))), "count": Out(BITS),
        })

    def elaborate(self, platform):
        m = Module()

        # One adder and one memory serve all counters. Each has a narrow front in registers that takes what comes in
        # every cycle. A pointer goes round; the counter it visits gives its front to the total in the memory, which is
        # read in that cycle and written in the next. A read from outside is a visit out of turn, so it is exact. Fronts
        # are wide enough for the longest round, in which every fourth visit is one out of turn.
        count = len(Counter)
        pointer, index = Signal(range(count)), Signal(range(count))
        visit, turn = Signal(), Signal()  # a counter is visited; the pointer's
        last, updating = Signal(range(count)), Signal()  # the visit of the cycle before
        clearing, rest = Signal(range(count + 1), init=count), Signal(range(_REST + 1))
        m.d.comb += [
            self.counter.ready.eq((clearing == 0) & (rest == 0) & ~self.clear & ~(updating & (last == self.counter.p))),
            turn.eq(~(self.counter.valid & self.counter.ready)),
            index.eq(Mux(turn, pointer, self.counter.p)),
            # A read has just visited the pointer's counter, whose total is not written yet: that will do.
            visit.eq(~self.clear & ~(turn & updating & (last == pointer))),
        ]
        m.d.sync += [updating.eq(visit), last.eq(index), rest.eq(Mux(turn, rest - (rest != 0), _REST))]
        with m.If(turn):
            m.d.sync += pointer.eq(Mux(pointer == count - 1, 0, pointer + 1))
            m.d.sync += clearing.eq(clearing - (clearing != 0))
        with m.If(self.clear):
            m.d.sync += clearing.eq(count)

        m.submodules.totals = totals = Memory(shape=BITS, depth=count, init=[])
        read, write = totals.read_port(), totals.write_port()
        front, fresh = self._fronts(m, visit, index), Signal()
        gained = Signal(front.shape())
        total = Signal(BITS + 1)
        m.d.sync += [gained.eq(front), fresh.eq(clearing != 0)]
        m.d.comb += [
            read.addr.eq(index), read.en.eq(1),
            total.eq(Mux(fresh, 0, read.data) + gained),
            self.count.eq(total[:BITS] | total[BITS].replicate(BITS)),
            write.addr.eq(last), write.data.eq(self.count), write.en.eq(updating),
        ]
        for counter in MAXIMA:  # their fronts stay, and their totals 0
            with m.If(last == counter):
                m.d.comb += write.en.eq(0)
        return m

    def _fronts(self, m, visit, index):
        """Add the increments to the fronts; a visit empties a front, but no maximum. Returns the front at `index`."""
        longest = (len(Counter) + 1) * (_REST + 1) // _REST + 2  # cycles from one visit of a counter to its next
        bits = {counter: width if counter in MAXIMA else bits_for(((1 << width) - 1) * longest)
                for counter, width in self.widths.items()}
        fronts = {counter: Signal(width, name=f"front_{counter.name.lower()}") for counter, width in bits.items()}
        chosen = Signal(max(bits.values()))
        with m.Switch(index):
            for counter, front in fronts.items():
                with m.Case(counter):
                    m.d.comb += chosen.eq(front)
        for counter, front in fronts.items():
            new = self.add[counter.name.lower()]
            if counter in MAXIMA:
                grown = Mux(new > front, new, front)
            else:
                grown = Mux(visit & (index == counter), 0, front) + new
            m.d.sync += front.eq(Mux(self.clear, 0, grown))
        return chosen
