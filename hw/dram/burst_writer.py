"""Writes ranges of words of Dram in bursts."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.dram.axi import ADDRESS, EDGE, Answer, BusWords, burst, failed, write_beat
from concord.hw.dram.block_queue import BlockQueue
from concord.hw.dram.burst_reader import BURSTS, LONGEST
from concord.hw.lib.outside import WORDS, Failure, Range
from concord.hw.lib.payloads import word
from concord.hw.lib.queue import Queue
from concord.spec.isa.instructions import ADDRESS_BITS
from concord.spec.machine.config import Config

BUFFER = 512  #: Words of the buffer.
ROOM = BUFFER - 2  #: Words that may wait there: its queue takes no more while its output is not full.
JOBS = 4  #: Bursts whose beats are given or wait.


class State(enum.Enum):
    """What becomes of the present range."""

    FREE = 0  #: There is none.
    MEASURE = 1  #: The greatest length of its next burst is found.
    CUT = 2  #: The length of that burst is found.
    GIVE = 3  #: It waits for its data.


class BurstWriter(wiring.Component):
    """Writes ranges of words in bursts.

    A burst is asked for only when all of its data are there, so that W never waits for the machine. Each burst ends at
    a multiple of the greatest length of a burst, or with its range.

    Args:
        config: The machine, or the words that are moved and the bus.

    Members:
        base: In(32). Address in bytes of word 0, a multiple of 4096; it changes only while idle.
        range: In(stream {first, count, tag, last}). Ranges of words.
        i: In(stream word). The words of the ranges in order; they may come before their range.
        room: Out. Number of words that are taken without a stall from now on.
        aw: Out(stream {addr, len}). w: Out(stream {data, strb, last}). b: In(stream {resp}). The port. W does not wait
            for AW.
        done: Out(1). Pulse: a range with `last` was answered, and all ranges before it.
        error: Out({valid, tag}). Pulse: a response of this range was SLVERR or DECERR, or one came that is of no burst;
            `tag` is then that of the oldest range under way, if there is one.
        reset: In(1). Forgets all ranges and words. Bursts that were given on AW get all of their beats, with strobes 0
            where words are lost; their responses are taken, and lost.
        idle: Out(1). No burst is under way, and no range is being cut.

    Timing:
        One beat a cycle, or one word where a beat holds several. A range takes 1 cycle, and each burst 4, in which
        earlier ones go on. `done` and `error` come one cycle after the response.
    """

    def __init__(self, config: Config | BusWords):
        self.config, self.bus, self.size = config, config.dram_bus, 2 * config.mfu_lanes
        super().__init__({
            "base": In(ADDRESS), "range": In(stream.Signature(Range)), "i": In(stream.Signature(word(config))),
            "room": Out(range(ROOM + 1), init=ROOM), "aw": Out(stream.Signature(burst())),
            "w": Out(stream.Signature(write_beat(self.bus))), "b": In(stream.Signature(Answer)),
            "done": Out(1), "error": Out(Failure), "reset": In(1), "idle": Out(1)})

    # Lengths are counted in pieces: a beat where a word has several, a word where a beat has several.

    @property
    def beats(self) -> int:
        """Beats, thus pieces, of a word."""
        return max(1, self.size // self.bus)

    @property
    def words(self) -> int:
        """Words, thus pieces, of a beat."""
        return max(1, self.bus // self.size)

    @property
    def longest(self) -> int:
        """Most beats of a burst: half of the buffer holds them, and they lie within 4 KB."""
        return min(LONGEST, EDGE // self.bus, BUFFER // 2 // self.words)

    def elaborate(self, platform):
        m = Module()
        again, most = ResetInserter(self.reset), self.longest * self.words
        m.submodules.buffer = self.buffer = again(BlockQueue(16 * self.config.mfu_lanes, BUFFER))
        m.submodules.jobs = self.jobs = Queue(
            data.StructLayout({"place": range(self.words), "pieces": range(most + 1)}), JOBS)
        m.submodules.bursts = self.bursts = Queue(data.StructLayout({"tag": ADDRESS_BITS, "last": 1}), BURSTS)
        self.draining = Signal()  # bursts are lost
        self.state, self.asked = Signal(State), Signal()
        self.length, self.enough = Signal(range(most + 1)), Signal()  # of the next burst, in pieces: its data are there
        self._take(m)
        self._cut(m)
        self._beats(m)
        self._answers(m)
        m.d.comb += self.idle.eq(~self.bursts.level.any() & ~self.aw.valid & (self.state == State.FREE))
        with m.If(self.reset):
            m.d.sync += [self.state.eq(State.FREE), self.draining.eq(1)]
        with m.Elif(self.idle):
            m.d.sync += self.draining.eq(0)
        return m

    def _take(self, m):
        """Take words, and count those that no burst has yet."""
        taken, queue = Signal(), self.buffer
        waiting = Signal(range((BUFFER + 2) * self.beats))  # pieces
        m.d.comb += [
            self.i.ready.eq(self.room.any()), taken.eq(self.i.valid & self.i.ready), queue.i.valid.eq(taken),
            queue.i.p.eq(self.i.p)]
        m.d.sync += [
            self.enough.eq((waiting >= self.length) & (self.state == State.GIVE) & ~self.asked),
            waiting.eq(waiting + Mux(taken, self.beats, 0) - Mux(self.asked, self.length, 0)),
            self.room.eq(self.room - taken + (queue.o.valid & queue.o.ready))]
        with m.If(self.reset):
            m.d.sync += [waiting.eq(0), self.room.eq(ROOM)]

    def _cut(self, m):
        """Cut ranges into bursts, and give those on AW whose data are there."""
        state, aw, length, one = self.state, self.aw, self.length, self.bursts.i
        at, left, tag, last = Signal(WORDS), Signal(WORDS), Signal(ADDRESS_BITS), Signal()  # pieces; of the range
        final, fits = Signal(), Signal()  # the burst is the last one of its range
        shift, share, most = exact_log2(self.beats), exact_log2(self.words), self.longest * self.words
        fitting = Signal(range(most + 1))  # pieces of the greatest burst that begins here
        place, beat, edge = at[:share], at[share:], exact_log2(EDGE // self.bus)  # `place`: in its beat
        low = Cat(Const(0, exact_log2(self.bus)), beat[:edge])  # bits of an address in 4 KB
        m.d.comb += [
            self.range.ready.eq((state == State.FREE) & ~self.draining & ~self.reset),
            self.asked.eq((state == State.GIVE) & self.enough & self.jobs.i.ready & one.ready
                          & (~aw.valid | aw.ready) & ~self.reset),
            self.jobs.i.valid.eq(self.asked), self.jobs.i.p.place.eq(place), self.jobs.i.p.pieces.eq(length),
            one.valid.eq(self.asked), one.p.tag.eq(tag), one.p.last.eq(last & final),
            fits.eq(~left[len(fitting):].any() & (left[:len(fitting)] <= fitting))]
        m.d.sync += fitting.eq(most - at[:exact_log2(most)])
        with m.If(aw.ready):
            m.d.sync += aw.valid.eq(0)
        with m.Switch(state):
            with m.Case(State.FREE):
                p = self.range.p
                m.d.sync += [at.eq(p.first << shift), left.eq(p.count << shift), tag.eq(p.tag), last.eq(p.last)]
                with m.If(self.range.valid & self.range.ready):
                    m.d.sync += state.eq(State.MEASURE)
            with m.Case(State.MEASURE):
                m.d.sync += state.eq(State.CUT)
            with m.Case(State.CUT):
                m.d.sync += [length.eq(Mux(fits, left, fitting)), final.eq(fits), state.eq(State.GIVE)]
            with m.Case(State.GIVE):
                with m.If(self.asked):
                    m.d.sync += [
                        at.eq(at + length), left.eq(left - length), state.eq(Mux(final, State.FREE, State.MEASURE)),
                        aw.valid.eq(1), aw.p.addr.eq(Cat(low, self.base[len(low):] + beat[edge:])),
                        aw.p.len.eq((place + length - 1) >> share)]

    def _beats(self, m):
        """Make beats of words."""
        job, w = self.jobs.o, self.w
        left, now, begun = Signal.like(job.p.pieces), Signal.like(job.p.pieces), Signal()
        last, moved = Signal(), Signal()
        there, full = (self._shared if self.words > 1 else self._parts)(m, begun, last, moved)
        m.d.comb += [now.eq(Mux(begun, left, job.p.pieces)), last.eq(now == 1), job.ready.eq(moved & last),
                     moved.eq(job.valid & (there | self.draining) & (~full | ~w.valid | w.ready))]
        with m.If(moved & full):
            m.d.sync += [w.valid.eq(1), w.p.last.eq(last)]
        with m.Elif(w.ready):
            m.d.sync += w.valid.eq(0)
        with m.If(moved):
            m.d.sync += [left.eq(now - 1), begun.eq(~last)]

    def _shared(self, m, begun, last, moved):
        """Gather the words of a beat. Returns whether a word is there, and whether the beat is full with it."""
        queue, w, bits = self.buffer.o, self.w, 8 * self.size
        place, following = Signal(range(self.words)), Signal(range(self.words))
        gathered, strobes = Signal(8 * self.bus, reset_less=True), Signal(self.words)
        joined, marked = Signal.like(gathered), Signal.like(strobes)
        full = last | (place == self.words - 1)
        m.d.comb += [place.eq(Mux(begun, following, self.jobs.o.p.place)), queue.ready.eq(moved & ~self.draining)]
        for k in range(self.words):
            here, part = place == k, slice(k * bits, (k + 1) * bits)
            m.d.comb += [joined[part].eq(Mux(here, queue.p, gathered[part])),
                         marked[k].eq(strobes[k] | (here & ~self.draining))]
        with m.If(moved):
            m.d.sync += [following.eq(place + 1), gathered.eq(joined), strobes.eq(Mux(full, 0, marked))]
        with m.If(moved & full):
            m.d.sync += [w.p.data.eq(joined), w.p.strb.eq(Cat(bit.replicate(self.size) for bit in marked))]
        with m.If(self.reset):
            m.d.sync += strobes.eq(0)
        return queue.valid, full

    def _parts(self, m, begun, last, moved):
        """Cut a word into beats. Returns whether a beat is there, and that each one is full."""
        queue, w = self.buffer.o, self.w
        held, there, part = Signal(8 * self.size, reset_less=True), Signal(), Signal(range(max(2, self.beats)))
        used, ends = Signal(), Signal()  # a beat of the word is given; it is the word's last one
        m.d.comb += [used.eq(moved & ~self.draining), ends.eq(part == self.beats - 1),
                     queue.ready.eq(~there | (used & ends))]
        with m.If(queue.ready):
            m.d.sync += [held.eq(queue.p), there.eq(queue.valid), part.eq(0)]
        with m.Elif(used):
            m.d.sync += [held.eq(held >> 8 * self.bus), part.eq(part + 1)]
        with m.If(moved):
            m.d.sync += [w.p.data.eq(held), w.p.strb.eq((~self.draining).replicate(self.bus))]
        with m.If(self.reset):
            m.d.sync += there.eq(0)
        return there, C(1)

    def _answers(self, m):
        """Take the answers to bursts whose beats have all been given; others are surplus."""
        oldest, ended = self.bursts.o, Signal(range(BURSTS + JOBS))
        answered, wrong = Signal(), Signal()
        m.d.comb += [
            self.b.ready.eq(1), answered.eq(self.b.valid & ended.any()), oldest.ready.eq(answered),
            wrong.eq(self.b.valid & (failed(self.b.p.resp) | ~ended.any()))]
        m.d.sync += [
            ended.eq(ended + (self.w.valid & self.w.ready & self.w.p.last) - answered),
            self.done.eq(answered & oldest.p.last & ~self.draining & ~self.reset),
            self.error.valid.eq(wrong & ~self.draining & ~self.reset), self.error.tag.eq(oldest.p.tag)]
