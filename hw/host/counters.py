"""Event and time counters: golden.host.counters in hardware, with the counters of cycles."""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from concord.hw.lib.arithmetic import UNCHECKED
from concord.hw.lib.pipeline import delay
from concord.spec.host.registers import READS, WRITES, Counter, counters
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config

BITS = 32  #: Number of bits of a counter.
_TALLY = 7  #: Number of bits of the front of a counter of single events.
_REST = 3  #: Cycles after a read in which no other read is taken.
LATE = 3  #: Cycles from a read to its value.
MAXIMA = (Counter.EXCESS_PARTIAL, Counter.EXCESS_PRODUCT, Counter.EXCESS_OUTPUT)  #: They hold the largest value.


def counted(config: Config) -> dict[Counter, int]:
    """Number of bits of each counter's increment in one cycle; for an excess, of its value."""
    rows = bits_for(config.native_dim)
    products = bits_for(config.native_dim * config.lanes * config.tile_engines)
    width = {Counter.INSTRUCTIONS: 4, Counter.BEATS: bits_for(config.tile_engines),
             Counter.TILES: bits_for(config.tile_engines), Counter.OVERFLOW_PARTIAL: rows + 1,
             Counter.OVERFLOW_PRODUCT: products, Counter.OVERFLOW_OUTPUT: bits_for(config.mfu_lanes),
             Counter.EXCESS_PARTIAL: 8, Counter.EXCESS_PRODUCT: 8, Counter.EXCESS_OUTPUT: 8,
             **dict.fromkeys(READS.values(), 3), **dict.fromkeys(WRITES.values(), 2)}
    if config.dram_words:  # a beat of tiles, and a word
        width[READS[Mem.DRAM]] = max(3, bits_for(config.dram_bus // (2 * config.mfu_lanes) + 1))
    for counter in Counter:
        if counter.name.startswith("LAZY_") and config.lazy_update:
            width[counter] = 32
    width[Counter.WRITE_MVM_Q] = bits_for(config.mvmq_words)
    if config.vector_rf:
        width |= {Counter.VECTORS: 2, Counter.READ_VECTOR_RF: bits_for(max(
            config.tile_engines + 1, config.vector_words * bool(config.dram_words)))}
    return {counter: width.get(counter, 1) for counter in counters(config)}


class EventCounters(wiring.Component):
    """Saturating counters of 32 bits, all of which may grow in every cycle.

    Args:
        widths: Number of bits of each counter's increment in one cycle, or of the value of a maximum.

    Members:
        add: In({name in lower case: bits}). Increment of each counter in this cycle, or the value for a maximum.
        clear: In(1). Sets all counters to 0 and ignores `add` in this cycle.
        counter: In(stream index). Request to read a counter of `spec.host.registers.Counter`. Not taken while clearing,
            nor in its first cycle.
        count: Out(32). Value of that counter, `LATE` cycles later, with all increments until the request was taken.

    Timing:
        One read every 4 cycles. A `clear` or a reset, which also clears, delays reads by one cycle for each counter.
    """

    codes = (Counter,)

    def __init__(self, widths: dict[Counter, int]):
        self.widths = widths
        super().__init__({
            "add": In(data.StructLayout({counter.name.lower(): bits for counter, bits in widths.items()})),
            "clear": In(1),
            "counter": In(stream.Signature(range(len(widths)))), "count": Out(BITS),
        })

    def elaborate(self, platform):
        m = Module()

        # One adder and one memory serve all counters. Each has a narrow front in registers that takes what comes in
        # every cycle. A pointer goes round; the counter it visits gives its front to the total in the memory. The
        # total is read in the first cycle of a visit, the front is taken in the second one and becomes a number in the
        # third, and the sum is written in the fourth. A read from outside is a visit out of turn, so it is exact.
        # Fronts are wide enough for the longest round, in which every fourth visit is one out of turn.
        count = len(self.widths)
        pointer, index = Signal(range(count)), Signal(range(count))
        visit, turn = Signal(), Signal()  # a counter is visited; the pointer's
        visits = [Signal(data.StructLayout({"under_way": 1, "index": range(count)}), name=f"visit{k}")
                  for k in range(LATE)]

        asked, free = self.counter, Signal()  # no visit of the counter that is asked for is under way
        m.d.sync += free.eq(asked.valid & ~asked.ready & (asked.p != pointer) & ~_visited(asked.p, visits[:-1]))
        clearing, rest = Signal(range(count + 1), init=count), Signal(range(_REST + 1))
        m.d.comb += [
            self.counter.ready.eq((clearing == 0) & (rest == 0) & ~self.clear & free),
            turn.eq(~(self.counter.valid & self.counter.ready)),
            index.eq(Mux(turn, pointer, self.counter.p)),
            # A read has just visited the pointer's counter, whose total is not written yet: that will do.
            visit.eq(~self.clear & ~(turn & _visited(pointer, visits))),
        ]
        m.d.sync += [
            Cat(visits).eq(Cat(visit, index, visits[:-1])), rest.eq(Mux(turn, rest - (rest != 0), _REST))]
        with m.If(turn):
            m.d.sync += pointer.eq(Mux(pointer == count - 1, 0, pointer + 1))
            m.d.sync += clearing.eq(clearing - (clearing != 0))
        with m.If(self.clear):
            m.d.sync += clearing.eq(count)

        m.submodules.totals = totals = Memory(shape=BITS, depth=count, init=[], attrs=UNCHECKED)
        read, write = totals.read_port(), totals.write_port()
        (front, tally), fresh = self._fronts(m, visits[0].under_way, visits[0].index), Signal()
        gained, tallied, more, before = Signal(len(front)), Signal(_TALLY), Signal(len(front)), Signal(BITS)
        total, last = Signal(BITS + 1), visits[-1].index
        m.d.sync += [
            gained.eq(front), tallied.eq(tally), more.eq(gained | Array(_steps())[tallied]),  # one of both is 0
            fresh.eq(delay(m, clearing != 0, 1)), before.eq(Mux(fresh, 0, delay(m, read.data, 1)))]
        m.d.comb += [
            read.addr.eq(index), read.en.eq(1),
            total.eq(before + more),
            self.count.eq(total[:BITS] | total[BITS].replicate(BITS)),
            write.addr.eq(last), write.data.eq(self.count), write.en.eq(visits[-1].under_way),
        ]
        for counter in MAXIMA:  # their fronts stay, and their totals 0
            with m.If(last == counter):
                m.d.comb += write.en.eq(0)
        return m

    def _fronts(self, m, visit, index):
        """Add the increments to the fronts; a visit empties a front, but no maximum.

        Returns:
            The front at `index`, or 0 if it is a tally; the tally at `index`, or 0 if it is none.
        """
        # Cycles from one visit of a counter to its next.
        longest = (len(self.widths) + 1) * (_REST + 1) // _REST + 1 + LATE
        if longest >= (1 << _TALLY) - 1:
            raise ValueError(f"a tally of {_TALLY} bits does not count to {longest}")
        here = {counter: Signal(name=f"here_{counter.name.lower()}") for counter in self.widths}
        fronts, tallies = {}, {}
        for counter, width in self.widths.items():
            name = counter.name.lower()
            new, visited = self.add[name], visit & here[counter]
            m.d.comb += here[counter].eq(index == counter)
            if counter in MAXIMA:
                fronts[counter] = front = Signal(width, name=f"front_{name}")
                grown = Mux(new > front, new, front)
            elif width == 1:
                tallies[counter] = self._tally(m, new, visited, f"tally_{name}")
                continue
            else:
                fronts[counter] = front = Signal(bits_for(((1 << width) - 1) * longest), name=f"front_{name}")
                grown = Mux(visited, 0, front) + new
            m.d.sync += front.eq(Mux(self.clear, 0, grown))
        return _chosen(here, fronts), _chosen(here, tallies)

    def _tally(self, m, new, visited, name):
        """A shift register with feedback, which counts events of one bit by its steps and needs no adder."""
        tally = Signal(_TALLY, name=name)
        with m.If(self.clear):
            m.d.sync += tally.eq(0)
        with m.Elif(visited):
            m.d.sync += tally.eq(new)  # the first step leads from 0 to 1
        with m.Elif(new):
            m.d.sync += tally.eq(Cat(~(tally[-1] ^ tally[-2]), tally[:-1]))
        return tally


def _visited(counter, visits):
    """Whether one of these visits is that of a counter, whose total is not written yet."""
    return Cat(visit.under_way & (visit.index == counter) for visit in visits).any()


def _steps() -> list[int]:
    """Number of steps from 0 to each state of a tally; 0 for the state that no step leads to."""
    steps, state = [0] * (1 << _TALLY), 0
    for k in range((1 << _TALLY) - 1):
        steps[state] = k
        feedback = ~(state >> _TALLY - 1 ^ state >> _TALLY - 2) & 1
        state = (state << 1 | feedback) & (1 << _TALLY) - 1
    return steps


def _chosen(here, fronts):
    """The front of the counter that is `here`, or 0. Gates and one `or` take fewer cells than a multiplexer."""
    return reduce(or_, (here[counter].replicate(len(front)) & front for counter, front in fronts.items()), Const(0, 1))
