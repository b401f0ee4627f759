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


def words_of_beat(config: Config) -> int:
    """Number of words of a beat; 1 where a word has several beats."""
    return max(1, config.dram_bus // (2 * config.mfu_lanes))


def group(config: Config) -> data.StructLayout:
    """The first `count` of `words`, one at least; what stands in the others means nothing."""
    count = words_of_beat(config)
    return data.StructLayout({"words": data.ArrayLayout(word(config), count), "count": range(count + 1), "last": 1})


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
        groups: The output has all words of a beat at once.

    Members:
        base: In(32). Address in bytes of word 0, a multiple of 4096; it changes only while idle.
        range: In(stream {first, count, tag, last}). Ranges of words.
        ar: Out(stream {addr, len}). r: In(stream {data, resp, last}). The port.
        o: Out(stream {word, last}). Words; `last` is the last word of a range that has `last`. With `groups`:
            Out(stream {words, count, last}), the words of the range that a beat has; `last` is on the last group.
        error: Out({valid, tag}). Pulse: a response of this range was SLVERR or DECERR, or had a wrong number of beats.
        reset: In(1). Forgets all ranges. Responses to bursts that were asked for are still taken, and lost.
        idle: Out(1). No burst is under way, and no range is being cut.

    Timing:
        One beat a cycle, or one word where a beat holds several and `groups` is not set. A range takes 2 cycles, and
        each burst 2, in which earlier ones go on.
    """

    def __init__(self, config: Config, groups: bool = False):
        self.config, self.bus, self.size, self.groups = config, config.dram_bus, 2 * config.mfu_lanes, groups
        self.beatwise = groups and self.bus > self.size  # each beat gives all of its words at once
        super().__init__({
            "base": In(ADDRESS), "range": In(stream.Signature(Range)), "ar": Out(stream.Signature(burst())),
            "r": In(stream.Signature(read_beat(self.bus))),
            "o": Out(stream.Signature(
                group(config) if groups else data.StructLayout({"word": word(config), "last": 1}))),
            "error": Out(Failure), "reset": In(1), "idle": Out(1)})

    def elaborate(self, platform):
        m = Module()
        again = ResetInserter(self.reset)
        m.submodules.beats = self.beats = again(Queue(8 * self.bus, BEATS, True))
        m.submodules.jobs = self.jobs = again(Queue(data.StructLayout(
            {"skip": 8, "count": WORDS, "last": 1} | ({"end": 8} if self.beatwise else {})),
            BURSTS if self.beatwise else JOBS))  # a range of many words has few beats, and may be a short burst
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
        longest, shift = min(LONGEST, edge), exact_log2(words_of_beat(self.config))
        held, room = Signal(range(BEATS + 1)), Signal()  # beats that have their room
        left, before_edge = Signal(WORDS), Signal(range(edge + 1))
        taken, asked = self.beats.o.valid & self.beats.o.ready, Signal()
        m.d.comb += [
            self.range.ready.eq((state == State.FREE) & ~self.draining & ~self.reset & self.jobs.i.ready),
            room.eq(held + length <= BEATS), left.eq(stop - at), before_edge.eq(edge - at[:exact_log2(edge)]),
            asked.eq((state == State.ASK) & room & self.bursts.i.ready & (~self.ar.valid | self.ar.ready)
                     & ~self.reset),
            self.bursts.i.valid.eq(asked), self.bursts.i.p.beats.eq(length - 1), self.bursts.i.p.tag.eq(present.tag),
            self.jobs.i.p.skip.eq(present.first[:shift]), self.jobs.i.p.last.eq(present.last)]
        if self.beatwise:
            placed = Signal()  # the number of beats is known since this cycle
            m.d.sync += placed.eq((state == State.PLACE) & ~self.reset)
            m.d.comb += [self.jobs.i.valid.eq(placed), self.jobs.i.p.count.eq(left),
                         self.jobs.i.p.end.eq(end[:shift])]
        else:
            m.d.comb += [self.jobs.i.valid.eq(state == State.PLACE), self.jobs.i.p.count.eq(present.count)]
        m.d.sync += held.eq(Mux(self.reset, 0, held + Mux(asked, length, 0) - taken))
        with m.If(self.ar.ready):
            m.d.sync += self.ar.valid.eq(0)
        with m.Switch(state):
            with m.Case(State.FREE):
                m.d.sync += [present.eq(self.range.p), end.eq(self.range.p.first + self.range.p.count)]
                with m.If(self.range.valid & self.range.ready):
                    m.d.sync += state.eq(State.PLACE)
            with m.Case(State.PLACE):
                m.d.sync += [*self._placed(present.first, end, at, stop), state.eq(State.CUT)]
            with m.Case(State.CUT):
                most = Mux(before_edge < longest, before_edge, longest)
                m.d.sync += [length.eq(Mux(left < most, left, most)), state.eq(State.ASK)]
            with m.Case(State.ASK):
                with m.If(asked):
                    m.d.sync += [
                        at.eq(at + length), state.eq(Mux(left == length, State.FREE, State.CUT)),
                        self.ar.valid.eq(1), self.ar.p.addr.eq(self.base + (at << exact_log2(self.bus))),
                        self.ar.p.len.eq(length - 1)]

    def _placed(self, first, end, at, stop) -> list:
        """The beats from the one with word `first` up to the one with the word before `end`."""
        if self.bus < self.size:
            shift = exact_log2(self.size // self.bus)
            return [at.eq(first << shift), stop.eq(end << shift)]
        shift = exact_log2(words_of_beat(self.config))
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
        """Make words, or groups, of beats."""
        beat, job, o = self.beats.o, self.jobs.o, self.o
        left, now, begun = Signal(WORDS), Signal(WORDS), Signal()  # words, or groups, of the range that are left
        whole, last, moved = Signal(), Signal(), Signal()  # `whole`: the present beat has the end of a word
        m.d.comb += [now.eq(Mux(begun, left, job.p.count)), last.eq(now == 1), job.ready.eq(moved & last),
                     moved.eq(beat.valid & whole & job.valid & (~o.valid | o.ready))]
        with m.If(moved):
            m.d.sync += [o.valid.eq(1), o.p.last.eq(last & job.p.last), left.eq(now - 1), begun.eq(~last)]
        with m.Elif(o.ready):
            m.d.sync += o.valid.eq(0)
        if self.beatwise:
            self._all_words(m, whole, begun, last, moved)
        elif self.bus > self.size:
            self._one_word(m, whole, begun, last, moved)
        else:
            self._joined_beats(m, whole, moved)
        with m.If(self.reset):
            m.d.sync += [o.valid.eq(0), begun.eq(0)]

    def _all_words(self, m, whole, begun, last, moved):
        """Give what a beat holds of the range."""
        beat, job, o, count = self.beats.o, self.jobs.o.p, self.o, words_of_beat(self.config)
        skip, end = Signal(range(count)), Signal(range(count + 1))  # words of the beat before the range; its end there
        m.d.comb += [whole.eq(1), beat.ready.eq(moved), skip.eq(Mux(begun, 0, job.skip)),
                     end.eq(Mux(last & (job.end != 0), job.end, count))]
        with m.If(moved):
            m.d.sync += [o.p.count.eq(end - skip),
                         Value.cast(o.p.words).eq(beat.p >> Cat(Const(0, exact_log2(8 * self.size)), skip))]

    def _one_word(self, m, whole, begun, last, moved):
        """Give the words of a beat one by one."""
        beat, count = self.beats.o, words_of_beat(self.config)
        index, following = Signal(range(count)), Signal(range(count))
        m.d.comb += [whole.eq(1), index.eq(Mux(begun, following, self.jobs.o.p.skip)),
                     beat.ready.eq(moved & (last | (index == count - 1)))]
        with m.If(moved):
            m.d.sync += [following.eq(index + 1),
                         Value.cast(self.o.p.word).eq(beat.p.word_select(index, 8 * self.size))]

    def _joined_beats(self, m, whole, moved):
        """Make a word of one beat or of several."""
        beat, count, o = self.beats.o, self.size // self.bus, self.o.p
        part, gathered = Signal(range(max(2, count))), Signal(8 * self.size)
        joined = Cat(gathered, beat.p)[8 * self.bus:]
        m.d.comb += [whole.eq(part == count - 1), beat.ready.eq(moved | ~whole)]
        with m.If(beat.valid & beat.ready):
            m.d.sync += [gathered.eq(joined), part.eq(Mux(whole, 0, part + 1))]
        with m.If(moved):
            m.d.sync += [Value.cast(o.words).eq(joined), o.count.eq(1)] if self.groups else [
                Value.cast(o.word).eq(joined)]
        with m.If(self.reset):
            m.d.sync += part.eq(0)
