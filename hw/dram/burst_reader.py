"""Reads ranges of words of Dram in bursts."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.dram.axi import ADDRESS, EDGE, BusWords, burst, failed, read_beat
from concord.hw.dram.block_queue import BlockQueue
from concord.hw.lib.outside import WORDS, Failure, Range
from concord.hw.lib.payloads import word
from concord.hw.lib.queue import Queue
from concord.spec.isa.instructions import ADDRESS_BITS
from concord.spec.machine.config import Config

BEATS = 512  #: Beats that are under way or wait: as many as hide a latency of 400 cycles.
LONGEST = 64  #: Most beats of a burst.
BURSTS = 32  #: Bursts under way.


def words_of_beat(config: Config | BusWords) -> int:
    """Number of words of a beat; 1 where a word has several beats."""
    return max(1, config.dram_bus // (2 * config.mfu_lanes))


def group(config: Config | BusWords) -> data.StructLayout:
    """The first `count` of `words`, one at least; what stands in the others means nothing."""
    count = words_of_beat(config)
    return data.StructLayout({"words": data.ArrayLayout(word(config), count), "count": range(count + 1), "last": 1})


class State(enum.Enum):
    """What becomes of the present range."""

    FREE = 0  #: There is none.
    MEASURE = 1  #: The greatest length of its next burst is found.
    CUT = 2  #: The length of that burst is found.
    ASK = 3  #: It waits for room.


class BurstReader(wiring.Component):
    """Asks for ranges of words in bursts, and gives the words in order.

    A burst is asked for only when all of its beats have room, so that R never waits for the machine. Where a response
    has too few beats, zeros replace them; beats beyond the end are dropped.

    Args:
        config: The machine, or the words that are moved and the bus.
        groups: The output has all words of a beat at once.
        beats:  Beats that are under way or wait, a power of two and two long bursts at least.

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
        One beat a cycle, or one word where a beat holds several and `groups` is not set. A range takes 1 cycle, and
        each burst 3, in which earlier ones go on.
    """

    def __init__(self, config: Config | BusWords, groups: bool = False, beats: int = BEATS):
        self.config, self.bus, self.size, self.groups = config, config.dram_bus, 2 * config.mfu_lanes, groups
        self.depth = beats
        super().__init__({
            "base": In(ADDRESS), "range": In(stream.Signature(Range)), "ar": Out(stream.Signature(burst())),
            "r": In(stream.Signature(read_beat(self.bus))),
            "o": Out(stream.Signature(
                group(config) if groups else data.StructLayout({"word": word(config), "last": 1}))),
            "error": Out(Failure), "reset": In(1), "idle": Out(1)})

    def elaborate(self, platform):
        m = Module()
        # What a beat has of its range goes with it through the queue: `skip` words before the range, and `end`, where
        # the range ends in this beat, or 0 where it has all words from `skip` on.
        word_bits = exact_log2(words_of_beat(self.config))
        marks = {"skip": word_bits, "end": word_bits, "last": 1}
        self.beat = data.StructLayout({"data": 8 * self.bus, **marks})
        m.submodules.beats = self.beats = ResetInserter(self.reset)(BlockQueue(self.beat.size, self.depth))
        m.submodules.bursts = self.bursts = Queue(
            data.StructLayout({"beats": range(LONGEST), "tag": ADDRESS_BITS, **marks}), BURSTS)
        self.draining = Signal()  # responses are lost
        self.state = Signal(State)
        self._ask(m, word_bits)
        self._answers(m)
        self._words(m)
        m.d.comb += self.idle.eq(~self.bursts.level.any() & ~self.ar.valid & (self.state == State.FREE))
        with m.If(self.reset):
            m.d.sync += [self.state.eq(State.FREE), self.draining.eq(1)]
        with m.Elif(self.idle):
            m.d.sync += self.draining.eq(0)
        return m

    def _ask(self, m, word_bits: int):
        """Cut ranges into bursts, and ask for those that have room. A beat has 2**word_bits words."""
        state, given, ar, one = self.state, self.range.p, self.ar, self.bursts.i
        at, left, tag, last = Signal(WORDS), Signal(WORDS), Signal(ADDRESS_BITS), Signal()  # beats; of the range
        skip, end = Signal(word_bits), Signal(word_bits)  # of its next burst; of its last one
        edge, length, final = EDGE // self.bus, Signal(range(LONGEST + 1)), Signal()  # `final`: the range's last burst
        held, room, asked = Signal(range(self.depth + 1)), Signal(), Signal()  # beats that have their room
        most, fits = Signal(range(LONGEST + 1)), Signal()
        before_edge, longest = edge - at[:exact_log2(edge)], min(LONGEST, edge)
        m.d.comb += [
            self.range.ready.eq((state == State.FREE) & ~self.draining & ~self.reset),
            room.eq(held + length <= self.depth), fits.eq(~left[len(most):].any() & (left[:len(most)] <= most)),
            asked.eq((state == State.ASK) & room & one.ready & (~ar.valid | ar.ready) & ~self.reset),
            one.valid.eq(asked), one.p.beats.eq(length - 1), one.p.tag.eq(tag), one.p.last.eq(last & final),
            one.p.skip.eq(skip), one.p.end.eq(Mux(final, end, 0))]
        taken = self.beats.o.valid & self.beats.o.ready
        m.d.sync += [held.eq(Mux(self.reset, 0, held + Mux(asked, length, 0) - taken)),
                     most.eq(Mux(before_edge < longest, before_edge, longest))]
        with m.If(ar.ready):
            m.d.sync += ar.valid.eq(0)
        with m.Switch(state):
            with m.Case(State.FREE):
                m.d.sync += [self._beats(at, left, word_bits), tag.eq(given.tag), last.eq(given.last),
                             skip.eq(given.first), end.eq(given.first[:word_bits] + given.count[:word_bits])]
                with m.If(self.range.valid & self.range.ready):
                    m.d.sync += state.eq(State.MEASURE)
            with m.Case(State.MEASURE):
                m.d.sync += state.eq(State.CUT)
            with m.Case(State.CUT):
                m.d.sync += [length.eq(Mux(fits, left, most)), final.eq(fits), state.eq(State.ASK)]
            with m.Case(State.ASK):
                with m.If(asked):
                    low = Cat(Const(0, exact_log2(self.bus)), at[:exact_log2(edge)])  # bits of an address in 4 KB
                    m.d.sync += [
                        at.eq(at + length), left.eq(left - length), state.eq(Mux(final, State.FREE, State.MEASURE)),
                        ar.valid.eq(1), ar.p.addr.eq(Cat(low, self.base[len(low):] + at[exact_log2(edge):])),
                        ar.p.len.eq(length - 1), skip.eq(0)]

    def _beats(self, at, left, word_bits: int) -> list:
        """The first beat of the range at the input, and its number of beats."""
        first, count = self.range.p.first, self.range.p.count
        if self.bus <= self.size:
            shift = exact_log2(self.size // self.bus)
            return [at.eq(first << shift), left.eq(count << shift)]
        return [at.eq(first >> word_bits), left.eq((first[:word_bits] + count + (1 << word_bits) - 1) >> word_bits)]

    def _answers(self, m):
        """Take the beats of responses, and put right a wrong number of them."""
        burst_, queue, beat = self.bursts.o, self.beats, Signal(self.beat)
        seen, over, filling = Signal(range(LONGEST)), Signal(), Signal()
        ends, moved, done = Signal(), Signal(), Signal()
        m.d.comb += [
            self.r.ready.eq(~filling), moved.eq(self.r.valid & self.r.ready), ends.eq(seen == burst_.p.beats),
            beat.data.eq(self.r.p.data), beat.skip.eq(Mux(seen == 0, burst_.p.skip, 0)),
            beat.end.eq(Mux(ends, burst_.p.end, 0)), beat.last.eq(ends & burst_.p.last), queue.i.p.eq(beat),
            queue.i.valid.eq((filling | moved) & burst_.valid & ~over & ~self.draining & ~self.reset),
            burst_.ready.eq(done), self.error.tag.eq(burst_.p.tag),
            self.error.valid.eq(moved & ~over & ~self.draining & (
                ~burst_.valid | failed(self.r.p.resp) | (self.r.p.last != ends)))]
        with m.If(filling):
            m.d.comb += [done.eq(ends), beat.data.eq(0)]
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
        beat = Signal(self.beat)
        m.d.comb += beat.eq(self.beats.o.p)
        if self.bus == self.size:
            self._direct(m, beat)
            return
        queue, o, whole, moved, last = self.beats.o, self.o, Signal(), Signal(), Signal()  # `whole`: a word ends here
        m.d.comb += moved.eq(queue.valid & whole & (~o.valid | o.ready))
        with m.If(moved):
            m.d.sync += [o.valid.eq(1), o.p.last.eq(last)]
        with m.Elif(o.ready):
            m.d.sync += o.valid.eq(0)
        make = self._joined_beats if self.bus < self.size else self._all_words if self.groups else self._one_word
        make(m, beat, whole, moved, last)
        with m.If(self.reset):
            m.d.sync += o.valid.eq(0)

    def _direct(self, m, beat):
        """Give beats that are words."""
        queue, o = self.beats.o, self.o
        m.d.comb += [o.valid.eq(queue.valid), queue.ready.eq(o.ready), o.p.last.eq(beat.last)]
        m.d.comb += [Value.cast(o.p.words).eq(beat.data), o.p.count.eq(1)] if self.groups else [
            Value.cast(o.p.word).eq(beat.data)]

    def _all_words(self, m, beat, whole, moved, last):
        """Give what a beat holds of the range."""
        o, count = self.o, words_of_beat(self.config)
        m.d.comb += [whole.eq(1), self.beats.o.ready.eq(moved), last.eq(beat.last)]
        with m.If(moved):
            m.d.sync += [o.p.count.eq(Mux(beat.end != 0, beat.end, count) - beat.skip),
                         Value.cast(o.p.words).eq(beat.data >> Cat(Const(0, exact_log2(8 * self.size)), beat.skip))]

    def _one_word(self, m, beat, whole, moved, last):
        """Give the words of a beat one by one."""
        count, o, ends = words_of_beat(self.config), self.o, Signal()
        index, following, begun = Signal(range(count)), Signal(range(count)), Signal()
        m.d.comb += [whole.eq(1), index.eq(Mux(begun, following, beat.skip)),
                     ends.eq((index + 1)[:len(index)] == beat.end), last.eq(ends & beat.last),
                     self.beats.o.ready.eq(moved & ends)]
        with m.If(moved):
            m.d.sync += [following.eq(index + 1), begun.eq(~ends),
                         Value.cast(o.p.word).eq(beat.data.word_select(index, 8 * self.size))]
        with m.If(self.reset):
            m.d.sync += begun.eq(0)

    def _joined_beats(self, m, beat, whole, moved, last):
        """Make a word of several beats."""
        queue, count, o = self.beats.o, self.size // self.bus, self.o.p
        part, gathered = Signal(range(count)), Signal(8 * (self.size - self.bus), reset_less=True)
        joined = Cat(gathered, beat.data)
        m.d.comb += [whole.eq(part == count - 1), queue.ready.eq(moved | ~whole), last.eq(beat.last)]
        with m.If(queue.valid & queue.ready):
            m.d.sync += [gathered.eq(joined[8 * self.bus:]), part.eq(Mux(whole, 0, part + 1))]
        with m.If(moved):
            m.d.sync += [Value.cast(o.words).eq(joined), o.count.eq(1)] if self.groups else [
                Value.cast(o.word).eq(joined)]
        with m.If(self.reset):
            m.d.sync += part.eq(0)
