"""Reads ranges of words of Dram in bursts."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.dram.axi import ADDRESS, EDGE, burst, failed, read_beat
from concord.hw.lib.outside import WORDS, Failure, Range
from concord.hw.lib.payloads import word
from concord.hw.lib.queue import Queue
from concord.spec.isa.instructions import ADDRESS_BITS
from concord.spec.machine.config import Config

BEATS = 512  #: Beats that are under way or wait: as many as hide a latency of 400 cycles.
LONGEST = 64  #: Most beats of a burst.
BURSTS = 32  #: Bursts under way.
JOBS = 4  #: Ranges under way.


class State(enum.Enum):
    """What becomes of the present range."""

    FREE = 0  #: There is none.
    PLACE = 1  #: Its words become beats of the bus.
    CUT = 2  #: The length of its next burst is found.
    ASK = 3  #: That burst waits for room.


class BurstReader(wiring.Component):
    """Asks for ranges of words in bursts, and gives the words in order.

    A burst is asked for only when all of its beats have room, so that R never waits for the machine. Where a response
    has too few beats, zeros take their place; beats beyond the end are dropped.

    Args:
        config: The machine.

    Members:
        base: In(32). Address in bytes of word 0, a multiple of 4096; it changes only while idle.
        range: In(stream {first, count, tag, last}). Ranges of words.
        ar: Out(stream {addr, len}). r: In(stream {data, resp, last}). The port.
        o: Out(stream {word, last}). Words; `last` is the last word of a range that has `last`.
        error: Out({valid, tag}). Pulse: a response of this range was SLVERR or DECERR, or had a wrong number of beats.
        reset: In(1). Forgets all ranges. Responses to bursts that were asked for are still taken, and lost.
        idle: Out(1). No burst is under way, and no range is being cut.

    Timing:
        One beat a cycle, or one word where a beat holds several. A range takes 2 cycles, and each burst 2, in which
        earlier ones go on.
    """

    def __init__(self, config: Config):
        self.config, self.bus, self.size = config, config.dram_bus, 2 * config.mfu_lanes
        super().__init__({
            "base": In(ADDRESS), "range": In(stream.Signature(Range)), "ar": Out(stream.Signature(burst())),
            "r": In(stream.Signature(read_beat(self.bus))),
            "o": Out(stream.Signature(data.StructLayout({"word": word(config), "last": 1}))),
            "error": Out(Failure), "reset": In(1), "idle": Out(1)})

    def elaborate(self, platform):
        m = Module()
        again = ResetInserter(self.reset)
        m.submodules.beats = self.beats = again(Queue(8 * self.bus, BEATS, True))
        m.submodules.jobs = self.jobs = again(Queue(data.StructLayout({"skip": 8, "count": WORDS, "last": 1}), JOBS))
        m.submodules.bursts = self.bursts = Queue(data.StructLayout({"beats": 8, "tag": ADDRESS_BITS}), BURSTS)
        self.draining = Signal()  # responses are lost
        self.state = Signal(State)
        self._ask(m)
        self._answers(m)
        self._words(m)
        m.d.comb += self.idle.eq(~self.bursts.level.any() & ~self.ar.valid & (self.state == State.FREE))
        with m.If(self.reset):
            m.d.sync += [self.state.eq(State.FREE), self.draining.eq(1)]
        with m.Elif(self.idle):
            m.d.sync += self.draining.eq(0)
        return m

    def _ask(self, m):
        """Cut ranges into bursts, and ask for those that have room."""
        state, present = self.state, Signal(Range)
        at, stop, end = Signal(WORDS), Signal(WORDS), Signal(WORDS)  # beats, and the word behind the range
        edge, length = EDGE // self.bus, Signal(range(LONGEST + 1))
        longest = min(LONGEST, edge)
        held, room = Signal(range(BEATS + 1)), Signal()  # beats that have their room
        left, before_edge = Signal(WORDS), Signal(range(edge + 1))
        taken, asked = self.beats.o.valid & self.beats.o.ready, Signal()
        m.d.comb += [
            self.range.ready.eq((state == State.FREE) & ~self.draining & ~self.reset & self.jobs.i.ready),
            room.eq(held + length <= BEATS), left.eq(stop - at), before_edge.eq(edge - at[:exact_log2(edge)]),
            asked.eq((state == State.ASK) & room & self.bursts.i.ready & (~self.ar.valid | self.ar.ready)
                     & ~self.reset),
            self.bursts.i.valid.eq(asked), self.bursts.i.p.beats.eq(length - 1), self.bursts.i.p.tag.eq(present.tag),
            self.jobs.i.valid.eq(state == State.PLACE), self.jobs.i.p.count.eq(present.count),
            self.jobs.i.p.last.eq(present.last)]
        m.d.sync += held.eq(Mux(self.reset, 0, held + Mux(asked, length, 0) - taken))
        with m.If(self.ar.ready):
            m.d.sync += self.ar.valid.eq(0)
        with m.Switch(state):
            with m.Case(State.FREE):
                m.d.sync += [present.eq(self.range.p), end.eq(self.range.p.first + self.range.p.count)]
                with m.If(self.range.valid & self.range.ready):
                    m.d.sync += state.eq(State.PLACE)
            with m.Case(State.PLACE):
                m.d.sync += [*self._placed(m, present.first, end, at, stop), state.eq(State.CUT)]
            with m.Case(State.CUT):
                most = Mux(before_edge < longest, before_edge, longest)
                m.d.sync += [length.eq(Mux(left < most, left, most)), state.eq(State.ASK)]
            with m.Case(State.ASK):
                with m.If(asked):
                    m.d.sync += [
                        at.eq(at + length), state.eq(Mux(left == length, State.FREE, State.CUT)),
                        self.ar.valid.eq(1), self.ar.p.addr.eq(self.base + (at << exact_log2(self.bus))),
                        self.ar.p.len.eq(length - 1)]

    def _placed(self, m, first, end, at, stop) -> list:
        """The beats from the one with word `first` up to the one with the word before `end`."""
        if self.bus < self.size:
            shift = exact_log2(self.size // self.bus)
            return [at.eq(first << shift), stop.eq(end << shift)]
        shift = exact_log2(self.bus // self.size)
        m.d.comb += self.jobs.i.p.skip.eq(first[:shift])
        return [at.eq(first >> shift), stop.eq((end + (1 << shift) - 1) >> shift)]

    def _answers(self, m):
        """Take the beats of responses, and put right a wrong number of them."""
        burst_, queue = self.bursts.o, self.beats
        seen, over, filling = Signal(8), Signal(), Signal()
        ends, moved, done = Signal(), Signal(), Signal()
        m.d.comb += [
            self.r.ready.eq(~filling), moved.eq(self.r.valid & self.r.ready), ends.eq(seen == burst_.p.beats),
            queue.i.p.eq(Mux(filling, 0, self.r.p.data)),
            queue.i.valid.eq((filling | moved) & burst_.valid & ~over & ~self.draining & ~self.reset),
            burst_.ready.eq(done), self.error.tag.eq(burst_.p.tag),
            self.error.valid.eq(moved & ~over & ~self.draining & (
                ~burst_.valid | failed(self.r.p.resp) | (self.r.p.last != ends)))]
        with m.If(filling):
            m.d.comb += done.eq(ends)
            m.d.sync += filling.eq(~ends)
        with m.Elif(moved & burst_.valid):
            m.d.comb += done.eq(self.r.p.last & (ends | over | self.draining))
            m.d.sync += [filling.eq(self.r.p.last & ~ends & ~over & ~self.draining),
                         over.eq(~self.r.p.last & (ends | over))]
        with m.If(done):
            m.d.sync += [seen.eq(0), over.eq(0)]
        with m.Elif((filling | (moved & burst_.valid)) & ~ends):
            m.d.sync += seen.eq(seen + 1)

    def _words(self, m):
        """Make words of beats."""
        beat, job, o, bits = self.beats.o, self.jobs.o, self.o, 8 * self.size
        left, now, begun = Signal(WORDS), Signal(WORDS), Signal()  # words of the present range that are left
        whole, last, moved = Signal(), Signal(), Signal()  # `whole`: the present beat has the end of a word
        m.d.comb += [now.eq(Mux(begun, left, job.p.count)), last.eq(now == 1), job.ready.eq(moved & last),
                     moved.eq(beat.valid & whole & job.valid & (~o.valid | o.ready))]
        with m.If(moved):
            m.d.sync += [o.valid.eq(1), o.p.last.eq(last & job.p.last), left.eq(now - 1), begun.eq(~last)]
        with m.Elif(o.ready):
            m.d.sync += o.valid.eq(0)
        if self.bus > self.size:
            count = self.bus // self.size
            index, following = Signal(range(count)), Signal(range(count))
            m.d.comb += [whole.eq(1), index.eq(Mux(begun, following, job.p.skip)),
                         beat.ready.eq(moved & (last | (index == count - 1)))]
            with m.If(moved):
                m.d.sync += [following.eq(index + 1), Value.cast(o.p.word).eq(beat.p.word_select(index, bits))]
        else:
            count = self.size // self.bus
            part, gathered = Signal(range(max(2, count))), Signal(bits)
            joined = Cat(gathered, beat.p)[8 * self.bus:]
            m.d.comb += [whole.eq(part == count - 1), beat.ready.eq(moved | ~whole)]
            with m.If(beat.valid & beat.ready):
                m.d.sync += [gathered.eq(joined), part.eq(Mux(whole, 0, part + 1))]
            with m.If(moved):
                m.d.sync += Value.cast(o.p.word).eq(joined)
            with m.If(self.reset):
                m.d.sync += part.eq(0)
        with m.If(self.reset):
            m.d.sync += [o.valid.eq(0), begun.eq(0)]
