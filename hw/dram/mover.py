"""Moves entries of VectorRf and integers of BiasRf from and to Dram as they are packed there."""

from amaranth import *
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.dram.gearbox import Gearbox
from concord.hw.lib import message_payloads
from concord.hw.lib.jobs import TICKET, MoveJob
from concord.hw.lib.outside import Walk
from concord.hw.lib.packed_words import codes_words, exponents_words
from concord.hw.lib.payloads import ENTRY_READ, entry_reads, word
from concord.spec.isa.instructions import LONG_BITS, REGISTER_BITS
from concord.spec.machine import timing
from concord.spec.machine.config import Config

LANDED = 4  #: Cycles after which an entry, or a word of integers, can be read.
STORES = 1024  #: More than the ranges that wait for answers: each has words in the writer's buffer, or a burst.


class State(enum.Enum):
    """What becomes of the present job."""

    FREE = 0  #: There is none.
    SIZE = 1  #: The number of words of an iteration is found.
    ASK = 2  #: The words that it reads are asked for: codes, or integers.
    EXPONENTS = 3  #: So are its stored exponents.
    CODES = 4  #: The exponents or the codes of the present iteration get their address in Dram.
    WAIT = 5  #: Results of earlier products are on their way.
    MOVE = 6  #: The present iteration moves; of a job that writes, its stored exponents or its codes.
    NEXT = 7  #: The next iteration begins.
    ANSWERS = 8  #: Words are on their way to Dram, or entries to VectorRf.


class Mover(wiring.Component):
    """Runs chains whose words are packed entries or integers, one iteration after the other, while no other chain runs.

    Args:
        config: The machine.

    Members:
        job: In(stream MoveJob). Chains.
        busy: Out(1). A chain moves: the words that come are its own. done: Out. Number of finished chains.
        reads: Out(1). It moves entries or integers into the chip.
        codes_walk, exponents_walk, store_walk: Out(stream Walk). Words to read, and to write. All have one payload,
            which is that of the one that is valid.
        codes, exponents: In(stream word). Words that were read. stored: Out(stream word). Words to write.
        written: In(1). Pulse: the words of a `store_walk` are in Dram.
        bias: Out(stream {address, data}). Integers for BiasRf.
        entry_write: Out(stream {address, entry}). Entries for VectorRf. entries: Out(`entry_reads`). Reads of it.
        entry_read, entry_written: Out(1). An entry is read for its codes, or written, in this cycle.

    Timing:
        One entry a cycle, or one word, into the chip; one entry in 4 cycles out of it, for exponents and for codes.
    """

    def __init__(self, config: Config):
        self.config = config
        words, walk = stream.Signature(word(config)), stream.Signature(Walk)
        entries = {
            "exponents_walk": Out(walk), "exponents": In(words), "store_walk": Out(walk), "stored": Out(words),
            "written": In(1), "entries": Out(entry_reads(config)),
            "entry_write": Out(stream.Signature(message_payloads.entry_write(config))),
            "entry_read": Out(1), "entry_written": Out(1)} if config.vector_rf else {}
        super().__init__({
            "job": In(stream.Signature(MoveJob)), "busy": Out(1), "reads": Out(1), "done": Out(TICKET),
            "codes_walk": Out(walk), "codes": In(words),
            "bias": Out(stream.Signature(message_payloads.bias(config))), **entries})

    def elaborate(self, platform):
        m = Module()
        self.state, self.present = Signal(State), Signal(MoveJob)
        self.inside, self.outside = Signal(REGISTER_BITS), Signal(LONG_BITS)  # first addresses of the iteration
        self.at, self.left = Signal(REGISTER_BITS), Signal(REGISTER_BITS)  # on the chip: the next address; how many
        self.moved, self.second = Signal(), Signal()  # the iteration has moved; the codes of a job that writes move
        self.begins, self.quiet = Signal(), Signal(range(timing.last_result(self.config) + 1))
        m.d.comb += self.begins.eq((self.state == State.WAIT) & (self.quiet == 0))
        self._sizes(m)
        self._walks(m)
        steps = self._bias(m)
        if self.config.vector_rf:
            steps |= self._entries_in(m) | self._entries_out(m)
        with m.If(self.begins):
            m.d.sync += [self.at.eq(self.inside),
                         self.left.eq(Mux(self.present.bias, self.present.words, self.present.entries))]
        with m.Elif(steps):
            m.d.sync += [self.at.eq(self.at + 1), self.left.eq(self.left - 1)]
        self._iterations(m)
        self._states(m)
        return m

    def _sizes(self, m):
        """Find the numbers of words of the parts of an iteration."""
        job, codes = self.present, codes_words(self.config, self.present.entries)
        exponents = exponents_words(self.config, job.entries)
        self.codes_size = Signal(max(REGISTER_BITS + 1, len(codes)))
        self.exponents_size = Signal(max(1, len(exponents)))
        m.d.sync += [self.codes_size.eq(Mux(job.bias, job.words << 1, codes)),
                     self.exponents_size.eq(Mux(job.integer | job.bias, 0, exponents))]

    def _walks(self, m):
        """Ask for the words that a job reads at once, and for those that it writes iteration by iteration."""
        job, state, codes = self.present, self.state, Signal()  # `codes`: their address is asked for
        walks = {"codes_walk": state == State.ASK}
        m.d.comb += codes.eq((state == State.ASK) | self.second)
        if self.config.vector_rf:
            walks["exponents_walk"] = state == State.EXPONENTS
            walks["store_walk"] = state == State.CODES
        made = Signal(Walk)
        m.d.comb += [
            made.first.eq(self.outside + Mux(codes, self.exponents_size, 0)), made.inc.eq(1), made.tag.eq(job.tag),
            made.words.eq(Mux(codes, self.codes_size, self.exponents_size)),
            *(made[name].eq(Mux(job.writes, 1, job[name])) for name in ("iterations", "iterations_x")),
            *(made[name].eq(job.row[name]) for name in ("stride_x", "stride_y"))]
        for name, valid in walks.items():
            walk = getattr(self, name)
            m.d.comb += [walk.valid.eq(valid), walk.p.eq(made)]

    def _bias(self, m):
        """Join two words to one of BiasRf. Returns whether one is complete."""
        half, low, o, take = Signal(), Signal(16 * self.config.mfu_lanes, reset_less=True), self.bias, Signal()
        moving, whole = (self.state == State.MOVE) & self.present.bias, Cat(low, self.codes.p)
        m.d.comb += take.eq(moving & self.codes.valid & (self.left != 0))
        m.d.sync += [o.valid.eq(take & half), half.eq(half ^ take)]
        with m.If(take):
            m.d.sync += [low.eq(self.codes.p), o.p.address.eq(self.at),
                         *(lane.eq(whole.word_select(k, 32)) for k, lane in enumerate(o.p.data))]
        with m.If(self.present.bias):
            m.d.comb += [self.codes.ready.eq(take), self.moved.eq(moving & (self.left == 0))]
        return take & half

    def _entries_in(self, m):
        """Make entries of words of codes and of words of exponents. Returns whether one is made."""
        config, o, fmt = self.config, self.entry_write, self.config.activations
        width, into = 16 * config.mfu_lanes, ~self.present.writes & ~self.present.bias
        m.submodules.codes_in = codes = Gearbox(width, config.native_dim * fmt.code_bits)
        m.submodules.exponents_in = exponents = Gearbox(width, fmt.exponent_bits)
        go, moving = Signal(), (self.state == State.MOVE) & into
        m.d.comb += go.eq(moving & codes.o.valid & (exponents.o.valid | self.present.integer) & (
            ~o.valid | o.ready) & (self.left != 0))
        # What the last words of an iteration have beyond its last entry is dropped with that entry.
        for box, words in ((codes, self.codes), (exponents, self.exponents)):
            m.d.comb += [box.i.p.eq(words.p), box.i.valid.eq(words.valid & into), box.o.ready.eq(go),
                         box.skip.eq(self.left == 1)]
            with m.If(into):
                m.d.comb += words.ready.eq(box.i.ready)
        with m.If(go):
            m.d.sync += [o.valid.eq(1), o.p.address.eq(self.at), Value.cast(o.p.entry.mantissas).eq(codes.o.p),
                         o.p.entry.exponent.eq(Mux(self.present.integer, 0, exponents.o.p))]
        with m.Elif(o.ready):
            m.d.sync += o.valid.eq(0)
        m.d.comb += self.entry_written.eq(o.valid & o.ready)
        with m.If(moving):
            m.d.comb += self.moved.eq((self.left == 0) & ~o.valid)
        return go

    def _entries_out(self, m):
        """Make words of the exponents of the entries of an iteration, then of their codes, with zeros at the end.

        Returns:
            Whether an entry is read.
        """
        config, fmt, reads = self.config, self.config.activations, self.entries
        width, codes_bits = 16 * config.mfu_lanes, config.native_dim * fmt.code_bits
        m.submodules.codes_out = codes = Gearbox(codes_bits, width)
        m.submodules.exponents_out = exponents = Gearbox(fmt.exponent_bits, width)
        moving, due = Signal(), Signal.like(self.codes_size)  # `due`: words to leave
        coming, there, entry = Signal(ENTRY_READ), Signal(), Signal(codes_bits + fmt.exponent_bits, reset_less=True)
        taken, ends = Signal(), Signal()  # an entry is read; all entries of the iteration are in a gearbox
        free = Signal()  # there is room for an entry
        m.d.comb += [
            moving.eq((self.state == State.MOVE) & self.present.writes),
            reads.request.valid.eq(moving & (self.left != 0) & ~coming.any() & (~there | free)),
            free.eq(Mux(self.second, codes.i.ready, exponents.i.ready)),
            reads.request.address.eq(self.at), taken.eq(reads.request.valid & reads.grant),
            ends.eq((self.left == 0) & ~coming.any() & ~there), self.entry_read.eq(taken & self.second)]
        m.d.sync += coming.eq(Cat(taken, coming))
        with m.If(coming[-1]):
            m.d.sync += [there.eq(1), entry.eq(reads.entry)]
        with m.Elif(free):
            m.d.sync += there.eq(0)
        with m.If(self.begins):
            m.d.sync += due.eq(Mux(self.second, self.codes_size, self.exponents_size))
        with m.Elif(self.stored.valid & self.stored.ready):
            m.d.sync += due.eq(due - 1)
        for box, bits, chosen in ((codes, entry[:codes_bits], self.second),
                                  (exponents, entry[codes_bits:], ~self.second)):
            # Zeros fill a last word. What is inside beyond it is dropped with it.
            filled = len(bits) % width == 0
            zeros = C(0) if filled else ends & ~box.o.valid
            m.d.comb += [box.i.p.eq(bits if filled else Mux(there, bits, 0)), box.skip.eq(due == 1),
                         box.i.valid.eq(moving & chosen & (there | zeros) & (due != 0))]
            with m.If(chosen):
                m.d.comb += [self.stored.p.eq(box.o.p), self.stored.valid.eq(box.o.valid & moving & (due != 0)),
                             box.o.ready.eq(self.stored.ready & moving & (due != 0))]
        with m.If(moving):
            m.d.comb += self.moved.eq(due == 0)
        return taken

    def _iterations(self, m):
        """Move on to the next iteration. The walkers move on in Dram where a job reads."""
        job, writes = self.present, self.present.writes
        self.iterations, left_x, rows = Signal(REGISTER_BITS), Signal(REGISTER_BITS), Signal(REGISTER_BITS)
        along, last_x = Signal(REGISTER_BITS), Signal()
        from_row, from_line = Mux(last_x, job.row.stride_y, job.row.stride_x), Mux(last_x, job.line.skip, 0)
        m.d.comb += [last_x.eq(left_x == 1), along.eq(
            Mux(last_x & writes, rows, self.inside) + Mux(writes, from_row, job.line.step + from_line))]
        with m.If(self.state == State.SIZE):
            inside, outside = Mux(writes, job.row.first, job.line.first), Mux(writes, job.line.first, job.row.first)
            m.d.sync += [self.inside.eq(inside), rows.eq(inside), self.outside.eq(outside),
                         self.iterations.eq(job.iterations), left_x.eq(job.iterations_x)]
        with m.If(self.state == State.NEXT):
            m.d.sync += [self.iterations.eq(self.iterations - 1), self.inside.eq(along),
                         left_x.eq(Mux(last_x, job.iterations_x, left_x - 1)),
                         self.outside.eq(self.outside + job.line.step)]
            with m.If(last_x):
                m.d.sync += rows.eq(along)

    def _states(self, m):
        """Step through the states of a job."""
        job, state, wait = self.present, self.state, Signal(range(LANDED + 1))
        unanswered = Signal(range(STORES))
        m.d.comb += [self.job.ready.eq(state == State.FREE), self.busy.eq(state != State.FREE),
                     self.reads.eq(self.busy & ~job.writes)]
        stores, exponents = Const(0), Const(1)
        if self.config.vector_rf:
            stores, exponents = self.store_walk.valid & self.store_walk.ready, self.exponents_walk.ready
            m.d.sync += unanswered.eq(unanswered + stores - (self.written & self.busy))
        with m.If(self.quiet != 0):
            m.d.sync += self.quiet.eq(self.quiet - 1)
        with m.Switch(state):
            with m.Case(State.FREE):
                m.d.sync += [job.eq(self.job.p), wait.eq(0)]
                with m.If(self.job.valid):
                    m.d.sync += state.eq(State.SIZE)
            with m.Case(State.SIZE):
                m.d.sync += [wait.eq(1), self.second.eq(job.integer),
                             self.quiet.eq(timing.last_result(self.config))]
                with m.If(wait == 1):
                    m.d.sync += [wait.eq(0), state.eq(Mux(job.writes, State.CODES, State.ASK))]
            with m.Case(State.ASK):
                with m.If(self.codes_walk.ready):
                    m.d.sync += [self.second.eq(0), state.eq(
                        Mux(self.exponents_size == 0, State.WAIT, State.EXPONENTS))]
            with m.Case(State.EXPONENTS):
                with m.If(exponents):
                    m.d.sync += state.eq(State.WAIT)
            with m.Case(State.CODES):
                with m.If(stores):
                    m.d.sync += state.eq(State.WAIT)
            with m.Case(State.WAIT):
                with m.If(self.begins):
                    m.d.sync += state.eq(State.MOVE)
            with m.Case(State.MOVE):
                with m.If(self.moved):
                    again = job.writes & ~self.second
                    m.d.sync += [self.second.eq(1), state.eq(Mux(again, State.CODES, State.NEXT))]
            with m.Case(State.NEXT):
                m.d.sync += [self.second.eq(job.integer), state.eq(
                    Mux(self.iterations == 1, State.ANSWERS, Mux(job.writes, State.CODES, State.WAIT)))]
            with m.Case(State.ANSWERS):
                m.d.sync += wait.eq(wait + (wait != LANDED))
                with m.If((wait == LANDED) & (unanswered == 0)):
                    m.d.sync += [state.eq(State.FREE), self.done.eq(self.done + 1)]
