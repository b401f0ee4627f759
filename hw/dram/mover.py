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


class State(enum.Enum):
    """What becomes of the present job."""

    FREE = 0  #: There is none.
    SIZE = 1  #: The number of words of an iteration is found.
    ASK = 2  #: The words that it reads are asked for: codes, or integers.
    EXPONENTS = 3  #: So are its stored exponents.
    CODES = 4  #: The exponents or the codes of the present iteration get their place in Dram.
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
        codes_walk, exponents_walk, store_walk: Out(stream Walk). Words to read, and to write.
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
            "job": In(stream.Signature(MoveJob)), "busy": Out(1), "done": Out(TICKET), "codes_walk": Out(walk),
            "codes": In(words), "bias": Out(stream.Signature(message_payloads.bias(config))), **entries})

    def elaborate(self, platform):
        m = Module()
        self.state, self.present = Signal(State), Signal(MoveJob)
        self.row, self.line = Signal(LONG_BITS), Signal(LONG_BITS)  # first addresses of the present iteration
        self.to_stores, self.moved = Signal(), Signal()  # the job writes to Dram; the iteration has moved
        self.begins, self.quiet = Signal(), Signal(range(timing.product(self.config) + self.config.vector_words + 1))
        self.codes_size, self.exponents_size = Signal(LONG_BITS), Signal(LONG_BITS)  # words of an iteration
        self.second = Signal()  # the codes of a job that writes move, after its exponents
        m.d.comb += self.begins.eq((self.state == State.WAIT) & (self.quiet == 0))
        self._sizes(m)
        self._walks(m)
        self._bias(m)
        if self.config.vector_rf:
            self._entries_in(m)
            self._entries_out(m)
        self._iterations(m)
        self._states(m)
        return m

    def _sizes(self, m):
        """Find the numbers of words of the parts of an iteration."""
        job, codes = self.present, codes_words(self.config, self.present.entries)
        m.d.sync += [self.codes_size.eq(Mux(job.bias, job.words << 1, codes)), self.exponents_size.eq(
            Mux(job.integer | job.bias, 0, exponents_words(self.config, job.entries)))]
        m.d.comb += self.to_stores.eq(job.writes)

    def _walks(self, m):
        """Ask for the words that a job reads at once, and for those that it writes iteration by iteration."""
        job, state = self.present, self.state
        walks = [(self.codes_walk, state == State.ASK, job.row.first + self.exponents_size, self.codes_size)]
        if self.config.vector_rf:
            store, exponents = self.store_walk, ~self.second
            walks.append((self.exponents_walk, (state == State.EXPONENTS) & ~self.to_stores, job.row.first,
                          self.exponents_size))
            m.d.comb += [
                store.valid.eq((state == State.CODES) & self.to_stores), store.p.tag.eq(job.tag),
                store.p.first.eq(self.line + Mux(exponents, 0, self.exponents_size)), store.p.iterations.eq(1),
                store.p.iterations_x.eq(1), store.p.words.eq(Mux(exponents, self.exponents_size, self.codes_size))]
        for walk, valid, first, words in walks:
            m.d.comb += [
                walk.valid.eq(valid), walk.p.first.eq(first), walk.p.inc.eq(1), walk.p.words.eq(words),
                walk.p.tag.eq(job.tag), *(walk.p[name].eq(job[name]) for name in ("iterations", "iterations_x")),
                *(walk.p[name].eq(job.row[name]) for name in ("stride_x", "stride_y"))]

    def _bias(self, m):
        """Join two words to one of BiasRf."""
        config, o = self.config, self.bias
        half, low, at, left = Signal(), Signal(16 * config.mfu_lanes), Signal(REGISTER_BITS), Signal(REGISTER_BITS)
        moving, take = (self.state == State.MOVE) & self.present.bias, Signal()
        whole = Cat(low, self.codes.p)
        m.d.comb += take.eq(moving & self.codes.valid & (left != 0))
        m.d.sync += o.valid.eq(take & half)
        with m.If(self.begins):
            m.d.sync += [at.eq(self.line), left.eq(self.present.words), half.eq(0)]
        with m.If(take):
            m.d.sync += [half.eq(~half), low.eq(self.codes.p), o.p.address.eq(at),
                         *(lane.eq(whole.word_select(k, 32)) for k, lane in enumerate(o.p.data))]
            with m.If(half):
                m.d.sync += [at.eq(at + 1), left.eq(left - 1)]
        with m.If(self.present.bias):
            m.d.comb += [self.codes.ready.eq(take), self.moved.eq(moving & (left == 0))]

    def _entries_in(self, m):
        """Make entries of words of codes and of words of exponents."""
        config, o, fmt = self.config, self.entry_write, self.config.activations
        width, moving = 16 * config.mfu_lanes, (self.state == State.MOVE) & ~self.to_stores & ~self.present.bias
        m.submodules.codes_in = codes = Gearbox(width, config.native_dim * fmt.code_bits)
        m.submodules.exponents_in = exponents = Gearbox(width, fmt.exponent_bits)
        at, left = Signal(REGISTER_BITS), Signal(REGISTER_BITS)
        go, clear = Signal(), Signal()
        m.d.comb += [
            go.eq(codes.o.valid & (exponents.o.valid | self.present.integer) & (~o.valid | o.ready) & (left != 0)),
            codes.o.ready.eq(go), exponents.o.ready.eq(go), clear.eq(~moving), codes.clear.eq(clear),
            exponents.clear.eq(clear)]
        for box, words, size in ((codes, self.codes, self.codes_size),
                                 (exponents, self.exponents, self.exponents_size)):
            due = Signal.like(size)  # words of the iteration that have not come
            taken = words.valid & moving & (due != 0)
            m.d.comb += [box.i.p.eq(words.p), box.i.valid.eq(taken)]
            with m.If(moving):
                m.d.comb += words.ready.eq(box.i.ready & (due != 0))
            with m.If(self.begins):
                m.d.sync += due.eq(size)
            with m.Elif(taken & box.i.ready):
                m.d.sync += due.eq(due - 1)
        with m.If(o.ready):
            m.d.sync += o.valid.eq(0)
        with m.If(self.begins):
            m.d.sync += [at.eq(self.line), left.eq(self.present.entries)]
        with m.Elif(go):
            m.d.sync += [at.eq(at + 1), left.eq(left - 1), o.valid.eq(1), o.p.address.eq(at),
                         Value.cast(o.p.entry.mantissas).eq(codes.o.p),
                         o.p.entry.exponent.eq(Mux(self.present.integer, 0, exponents.o.p))]
        m.d.comb += self.entry_written.eq(o.valid & o.ready)
        with m.If(moving):
            m.d.comb += self.moved.eq((left == 0) & ~o.valid)

    def _entries_out(self, m):
        """Make words of the exponents of the entries of an iteration, then of their codes, with zeros at the end."""
        config, fmt, reads = self.config, self.config.activations, self.entries
        width, moving = 16 * config.mfu_lanes, (self.state == State.MOVE) & self.to_stores
        m.submodules.codes_out = codes = Gearbox(config.native_dim * fmt.code_bits, width)
        m.submodules.exponents_out = exponents = Gearbox(fmt.exponent_bits, width)
        at, left, due = Signal(REGISTER_BITS), Signal(REGISTER_BITS), Signal(LONG_BITS)  # `due`: words to leave
        coming, there, entry = Signal(ENTRY_READ), Signal(), Signal(Value.cast(reads.entry).shape())
        taken, fills, leaves = Signal(), Signal(), Signal()
        ready = Mux(self.second, codes.i.ready, exponents.i.ready)
        m.d.comb += [
            reads.request.valid.eq(moving & (left != 0) & ~coming.any() & ~there), reads.request.address.eq(at),
            taken.eq(reads.request.valid & reads.grant), fills.eq(moving & (there | ((left == 0) & ~coming.any())) & (
                due != 0)), leaves.eq(self.stored.valid & self.stored.ready)]
        m.d.comb += self.entry_read.eq(taken & self.second)
        m.d.sync += coming.eq(Cat(taken, coming))
        with m.If(taken):
            m.d.sync += [at.eq(at + 1), left.eq(left - 1)]
        with m.If(coming[-1]):
            m.d.sync += [there.eq(1), entry.eq(reads.entry)]
        with m.Elif(ready):
            m.d.sync += there.eq(0)
        with m.If(self.begins):
            m.d.sync += [at.eq(self.row), left.eq(self.present.entries), there.eq(0),
                         due.eq(Mux(self.second, self.codes_size, self.exponents_size))]
        with m.Elif(leaves):
            m.d.sync += due.eq(due - 1)
        codes_bits = config.native_dim * fmt.code_bits
        for box, bits, chosen in ((codes, entry[:codes_bits], self.second),
                                  (exponents, entry[codes_bits:], ~self.second)):
            m.d.comb += [box.i.p.eq(Mux(there, bits, 0)), box.i.valid.eq(fills & chosen), box.clear.eq(~moving)]
            with m.If(chosen):
                m.d.comb += [self.stored.p.eq(box.o.p), self.stored.valid.eq(box.o.valid & moving & (due != 0)),
                             box.o.ready.eq(self.stored.ready & moving & (due != 0))]
        with m.If(moving):
            m.d.comb += self.moved.eq(due == 0)

    def _iterations(self, m):
        """Move on to the next iteration."""
        job = self.present
        self.left, left_x = Signal(REGISTER_BITS), Signal(REGISTER_BITS)
        rows, along, last_x = Signal(LONG_BITS), Signal(LONG_BITS), Signal()
        m.d.comb += [last_x.eq(left_x == 1),
                     along.eq(Mux(last_x, rows + job.row.stride_y, self.row + job.row.stride_x))]
        with m.If(self.state == State.SIZE):
            m.d.sync += [self.row.eq(job.row.first), rows.eq(job.row.first), self.line.eq(job.line.first),
                         self.left.eq(job.iterations), left_x.eq(job.iterations_x)]
        with m.If(self.state == State.NEXT):
            m.d.sync += [self.left.eq(self.left - 1), self.row.eq(along),
                         left_x.eq(Mux(last_x, job.iterations_x, left_x - 1)),
                         self.line.eq(self.line + job.line.step + Mux(last_x, job.line.skip, 0))]
            with m.If(last_x):
                m.d.sync += rows.eq(along)

    def _states(self, m):
        """Step through the states of a job."""
        job, state, wait, unanswered = self.present, self.state, Signal(range(LANDED + 1)), Signal(LONG_BITS)
        m.d.comb += [self.job.ready.eq(state == State.FREE), self.busy.eq(state != State.FREE)]
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
                             self.quiet.eq(timing.product(self.config) + self.config.vector_words)]
                with m.If(wait == 1):
                    m.d.sync += [wait.eq(0), state.eq(Mux(self.to_stores, State.CODES, State.ASK))]
            with m.Case(State.ASK):
                with m.If(self.codes_walk.ready):
                    m.d.sync += state.eq(Mux(self.exponents_size == 0, State.WAIT, State.EXPONENTS))
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
                    again = self.to_stores & ~self.second
                    m.d.sync += [self.second.eq(1), state.eq(Mux(again, State.CODES, State.NEXT))]
            with m.Case(State.NEXT):
                m.d.sync += [self.second.eq(job.integer), state.eq(
                    Mux(self.left == 1, State.ANSWERS, Mux(self.to_stores, State.CODES, State.WAIT)))]
            with m.Case(State.ANSWERS):
                m.d.sync += wait.eq(wait + (wait != LANDED))
                with m.If((wait == LANDED) & (unanswered == 0)):
                    m.d.sync += [state.eq(State.FREE), self.done.eq(self.done + 1)]
