"""Executes programs: fetches instructions, executes those that need no engine, and dispatches the others."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.trainer.bases import Bases
from concord.hw.trainer.dispatcher import Dispatcher
from concord.hw.trainer.exponent_table import ExponentTable
from concord.hw.trainer.hazards import ENGINES
from concord.hw.trainer.instruction_decoder import InstructionDecoder, fields
from concord.hw.trainer.jobs import JOBS
from concord.hw.trainer.loops import Loops
from concord.hw.trainer.measuring import Measured, Measuring
from concord.hw.trainer.trainer_registers import INSTRUCTION_ADDRESS, Events, Rate
from concord.hw.trainer.wires import LENGTH, Ended, Summary, Word, exponent_writer
from concord.spec.trainer.config import MOST_PASSES, TrainerConfig
from concord.spec.trainer.instructions import OPCODE, WORD, MeasureKind, TrainerError, TrainerOp

CORES = 8  #: Bits of a mask of cores.
#: A core waits for the others of the mask: opcode of the instruction, and what it has measured.
Meeting = data.StructLayout({"valid": 1, "op": OPCODE.width, "cores": CORES, "own": Measured})
#: The answer: pulses that all have come, with what they have measured together, or that one never comes.
Met = data.StructLayout({"go": 1, "stopped": 1, "joined": Measured})
#: Where a core is in its program: whether it runs or has ended, why it stopped and at which instruction.
Progress = data.StructLayout({"running": 1, "done": 1, "error": 4, "address": INSTRUCTION_ADDRESS})


class ProgramSequencer(wiring.Component):
    """Executes a program.

    Args:
        config: Sizes.

    Members:
        start: In(1). A program starts, unless one runs. first, second: In(32). What R0 and R1 begin with.
        progress: Out(Progress). events: Out(Events). What counters add.
        address: Out. Address of an instruction word. fetched: In(128). That word, one cycle later; outside: In(1). The
            address is beyond the buffer, at once.
        number: In(3). Number of the core. meeting: Out(Meeting). met: In(Met). The rendezvous with other cores.
        limit: In(32). rate, decay: In(Rate). Registers.
        host_base_number, host_base: A base register for the host, one cycle later.
        host_word, host_bytes: A word of exponents for the host, one cycle later if `host_free`.
        load, store, move, tensor, pooling, update: Out(stream of a job). Jobs of the engines.
        ended: In(Ended for each engine). momentum: In. Length of T, with the end of an update.
        summary: In(Summary). What updates have met. clear_summary: Out(1). They begin anew.
        load_exponent, move_exponent: In(stream of ExponentWrite). Words of exponents that engines write.
        store_word, move_word: In(2). Words of exponents that engines read. exponents: Out(Word). One cycle later.
        failed: In(1). Pulse: an access to server memory failed. quiet: In(1). None is under way.
    """

    def __init__(self, config: TrainerConfig):
        self.config = config
        write = exponent_writer()["exponent_write"].flip()
        super().__init__({
            "start": In(1), "first": In(32), "second": In(32), "progress": Out(Progress), "events": Out(Events),
            "address": Out(INSTRUCTION_ADDRESS), "fetched": In(WORD), "outside": In(1), "number": In(3),
            "meeting": Out(Meeting), "met": In(Met), "limit": In(32), "rate": In(Rate), "decay": In(Rate),
            "host_base_number": In(5), "host_base": Out(32), "host_word": In(2), "host_bytes": Out(Word),
            "host_free": Out(1), **{name: Out(stream.Signature(job)) for name, job in JOBS.items()},
            "ended": In(data.ArrayLayout(Ended, len(ENGINES))), "momentum": In(LENGTH), "summary": In(Summary),
            "clear_summary": Out(1), "load_exponent": write, "move_exponent": write, "store_word": In(2),
            "move_word": In(2), "exponents": Out(Word), "failed": In(1), "quiet": In(1)})

    def elaborate(self, platform):
        m = Module()
        self.word, self.following, self.broken = Signal(2 * WORD), Signal(INSTRUCTION_ADDRESS), Signal()
        self.error, self.again, self.passes = Signal(4), Signal(), Signal(range(MOST_PASSES + 1))
        self.i = {op: fields(self.word, op) for op in TrainerOp}
        self._units(m)
        self._exponents(m)
        with m.If(self.failed):
            m.d.sync += self.broken.eq(1)
        with m.FSM():
            self._begin(m)
            self._fetch(m)
            self._execute(m)
            self._change_bases(m)
            self._together(m)
            self._sum(m)
            self._stop(m)
        return m

    def _units(self, m):
        """Connect the units with the instruction and with each other."""
        m.submodules.decoder = self.decoder = decoder = InstructionDecoder(self.config)
        m.submodules.loops = self.loops = Loops(INSTRUCTION_ADDRESS)
        m.submodules.bases = self.bases = bases = Bases()
        m.submodules.dispatcher = self.dispatcher = dispatcher = Dispatcher(self.config)
        m.submodules.measuring = self.measuring = measuring = Measuring()
        for name in JOBS:
            wiring.connect(m, getattr(dispatcher, name), wiring.flipped(getattr(self, name)))
        m.d.comb += [
            decoder.word.eq(self.word), dispatcher.word.eq(self.word), dispatcher.kind.eq(decoder.kind),
            dispatcher.views.eq(decoder.views), dispatcher.exponents.eq(decoder.exponents),
            dispatcher.limit.eq(self.limit), dispatcher.rate.eq(self.rate), dispatcher.decay.eq(self.decay),
            dispatcher.ended.eq(self.ended), dispatcher.momentum.eq(self.momentum), dispatcher.base.eq(bases.value),
            bases.host_number.eq(self.host_base_number), self.host_base.eq(bases.host_value),
            measuring.kind.eq(self.i[TrainerOp.MEASURE]["kind"]), measuring.rate.eq(self.rate.exponent),
            Value.cast(measuring.exponents).eq(decoder.exponents.as_value()),
            self.loops.count.eq(self.i[TrainerOp.LOOP]["count"]), self.loops.body.eq(self.following)]

    def _exponents(self, m):
        """The exponents, which several units read and write, one at a time."""
        m.submodules.exponents = self.table = table = ExponentTable()
        dispatcher, measuring = self.dispatcher, self.measuring
        self.measures, self.copies, stored = Signal(), Signal(), dispatcher.outside
        wiring.connect(m, dispatcher.merge, table.merge)
        m.d.comb += [
            table.number.eq(Mux(self.measures, measuring.number, dispatcher.number)), table.write.eq(measuring.wrote),
            table.written.eq(measuring.written), table.unit.eq(dispatcher.unit), table.lsb.eq(dispatcher.lsb),
            dispatcher.state.eq(table.state), measuring.state.eq(table.state),
            # While a copy reads exponents, the host waits.
            table.word.eq(Mux(~self.copies, self.host_word, Mux(stored, self.store_word, self.move_word))),
            self.host_free.eq(~self.copies & ~table.busy), self.host_bytes.eq(table.bytes),
            self.exponents.eq(table.bytes),
            table.word_write.valid.eq(self.load_exponent.valid | self.move_exponent.valid),
            table.word_write.p.eq(Mux(self.load_exponent.valid, self.load_exponent.p, self.move_exponent.p)),
            self.load_exponent.ready.eq(table.word_write.ready),
            self.move_exponent.ready.eq(table.word_write.ready & ~self.load_exponent.valid)]

    def _refuse(self, m, error: TrainerError):
        """Stop at this instruction."""
        m.d.sync += self.error.eq(error)
        m.next = "STOP"

    def _next(self, m):
        """Go on with the next instruction."""
        m.d.comb += self.events.instructions.eq(1)
        m.next = "FETCH"

    def _begin(self, m):
        """Wait for a start, and for what a reset or an earlier program has left."""
        progress, bases = self.progress, self.bases
        kept = [Signal(32, name=name) for name in ("kept_first", "kept_second")]
        with m.State("STOPPED"):
            m.d.comb += [self.dispatcher.clear_views.eq(1), self.loops.clear.eq(1)]
            with m.If(self.start):
                m.d.sync += [*(keep.eq(now) for keep, now in zip(kept, (self.first, self.second), strict=True)),
                             progress.running.eq(1), progress.done.eq(0), progress.error.eq(0), progress.address.eq(0),
                             self.error.eq(0), self.following.eq(0), self.again.eq(0), self.passes.eq(0)]
                m.next = "BEGIN"
        with m.State("BEGIN"):
            m.d.sync += self.broken.eq(0)
            m.d.comb += [bases.write_number.eq(0), bases.write_value.eq(kept[0])]
            with m.If(self.quiet & ~bases.busy & ~self.table.busy):
                m.d.comb += bases.write.eq(1)
                m.next = "SECOND"
        with m.State("SECOND"):
            m.d.comb += [bases.write_number.eq(1), bases.write_value.eq(kept[1]), bases.write.eq(1)]
            m.next = "FETCH"

    def _fetch(self, m):
        """Fetch an instruction of one word or two."""
        with m.State("FETCH"):
            m.d.comb += self.address.eq(self.following)
            m.d.sync += self.progress.address.eq(self.following)
            m.next = "TAKE"
            with m.If(self.outside):
                self._refuse(m, TrainerError.END)
            with m.If(self.broken):
                m.next = "STOP"
        with m.State("TAKE"):
            m.d.comb += self.address.eq(self.following + 1)
            m.d.sync += [self.word.eq(self.fetched), self.following.eq(self.following + 1)]
            m.next = "DECODE"
            with m.If(self.fetched[:OPCODE.width] == TrainerOp.TENSOR):
                m.next = "SECOND_WORD"
                with m.If(self.outside):
                    self._refuse(m, TrainerError.END)
        with m.State("SECOND_WORD"):
            m.d.sync += [self.word[WORD:].eq(self.fetched), self.following.eq(self.following + 1)]
            m.next = "DECODE"
        with m.State("DECODE"):
            m.next = "EXECUTE"

    def _execute(self, m):
        """Execute an instruction, or begin to."""
        kind, dispatcher, loops, i = self.decoder.kind, self.dispatcher, self.loops, self.i
        with m.State("EXECUTE"):
            with m.If(self.decoder.illegal):
                self._refuse(m, TrainerError.ILLEGAL)
            with m.Elif(kind.tensor):
                m.d.comb += dispatcher.write_view.eq(1)
                self._next(m)
            with m.Elif(kind.loop):
                with m.If(loops.full | (i[TrainerOp.LOOP]["count"] == 0)):
                    self._refuse(m, TrainerError.LOOP)
                with m.Else():
                    m.d.comb += loops.enter.eq(1)
                    self._next(m)
            with m.Elif(kind.end_loop):
                with m.If(loops.empty):
                    self._refuse(m, TrainerError.LOOP)
                with m.Else():
                    m.d.comb += loops.leave.eq(1)
                    with m.If(loops.again):
                        m.d.sync += self.following.eq(loops.first)
                    self._next(m)
            with m.Elif(kind.repeat):
                self._repeat(m)
            with m.Elif(kind.end):
                with m.If(~loops.empty):
                    self._refuse(m, TrainerError.LOOP)
                with m.Else():
                    m.d.comb += self.events.instructions.eq(1)
                    m.next = "STOP"
            with m.Elif(kind.s_wr | kind.s_add | kind.swap):
                m.next = "BASE"
            with m.Elif(kind.barrier):
                m.next = "BARRIER"
            with m.Elif(kind.measure):
                m.next = "MEASURE"
            with m.Else():
                m.d.comb += dispatcher.start.eq(1)
                m.next = "DISPATCH"
        with m.State("DISPATCH"):
            with m.If(dispatcher.done):
                with m.If(dispatcher.error.any()):
                    m.d.sync += self.error.eq(dispatcher.error)
                    m.next = "STOP"
                with m.Elif(kind.sum):
                    m.next = "SUM"
                with m.Elif(dispatcher.outlasts):
                    m.next = "OUTLAST"
                with m.Else():
                    self._next(m)
        with m.State("OUTLAST"):
            m.d.comb += self.copies.eq(1)
            with m.If(dispatcher.idle):
                self._next(m)

    def _repeat(self, m):
        """Go back while exponents change."""
        target = self.i[TrainerOp.REPEAT]["target"]
        with m.If((target < self.loops.first) | (target >= self.progress.address)):
            self._refuse(m, TrainerError.LOOP)
        with m.Elif(self.again & (self.passes == MOST_PASSES)):
            self._refuse(m, TrainerError.AGAIN)
        with m.Else():
            m.d.sync += [self.again.eq(0), self.passes.eq(Mux(self.again, self.passes + 1, 0))]
            m.d.comb += self.events.repeats.eq(self.again)
            with m.If(self.again):
                m.d.sync += self.following.eq(target)
            self._next(m)

    def _change_bases(self, m):
        """Write, add to and exchange base registers: read one or two, write one or two."""
        bases, kind, other = self.bases, self.decoder.kind, Signal(32)
        write, swap = self.i[TrainerOp.S_WR], self.i[TrainerOp.SWAP]
        m.d.comb += bases.number.eq(self.dispatcher.base_number)
        with m.State("BASE"):
            m.d.comb += bases.number.eq(write["r"])
            m.next = "CHANGE"
        with m.State("CHANGE"):
            # A swap writes, too, and then what it must.
            m.d.comb += [bases.number.eq(swap["q"]), bases.write_number.eq(write["r"]), bases.write.eq(1),
                         bases.write_value.eq(Mux(kind.s_add, bases.value, 0) + write["value"])]
            m.d.sync += other.eq(bases.value)
            with m.If(kind.swap):
                m.next = "SWAP"
            with m.Else():
                self._next(m)
        with m.State("SWAP"):
            m.d.comb += [bases.write_number.eq(write["r"]), bases.write_value.eq(bases.value), bases.write.eq(1)]
            m.next = "SWAPPED"
        with m.State("SWAPPED"):
            m.d.comb += [bases.write_number.eq(swap["q"]), bases.write_value.eq(other), bases.write.eq(1)]
            self._next(m)

    def _meet(self, m, cores, op, after: str):
        """Wait for the other cores of a mask, if there are any."""
        alone = (cores == 0) | (cores == 1 << self.number)
        own = cores.bit_select(self.number, 1)
        m.d.comb += [self.meeting.valid.eq(~alone & own), self.meeting.op.eq(op), self.meeting.cores.eq(cores)]
        with m.If(alone):
            m.next = after
        with m.Elif(~own | self.met.stopped):
            self._refuse(m, TrainerError.PEER)
        with m.Elif(self.met.go):
            m.next = after

    def _together(self, m):
        """Instructions that wait for those in flight, and perhaps for other cores."""
        dispatcher, measuring, i = self.dispatcher, self.measuring, self.i[TrainerOp.MEASURE]
        with m.State("BARRIER"):
            with m.If(dispatcher.idle & self.quiet):
                self._meet(m, self.i[TrainerOp.BARRIER]["cores"], TrainerOp.BARRIER, "PASSED")
        with m.State("PASSED"):
            self._next(m)

        update, named = i["kind"] == MeasureKind.UPDATE, dispatcher.named
        other = update & named.there & (Cat(named.ew, named.ev, named.eg) != Cat(i["ew"], i["e"], i["eg"]))
        joined = Signal(Measured)
        m.d.comb += [Value.cast(self.meeting.own.lengths).eq(measuring.own.as_value()),
                     self.meeting.own.summary.eq(self.summary), measuring.joined.eq(joined)]
        with m.State("MEASURE"):
            with m.If(other):
                self._refuse(m, TrainerError.MISMATCH)
            with m.Elif(~dispatcher.measuring):
                m.d.comb += measuring.read.eq(1)
                m.next = "READ"
        with m.State("READ"):
            m.d.comb += self.measures.eq(1)
            with m.If(measuring.done):
                m.next = "MEET"
        with m.State("MEET"):
            m.d.sync += joined.eq(Mux(self.meeting.valid, self.met.joined, self.meeting.own))
            self._meet(m, i["cores"], TrainerOp.MEASURE, "DECIDE")
        with m.State("DECIDE"):
            m.d.comb += measuring.write.eq(1)
            m.next = "WRITE"
        with m.State("WRITE"):
            m.d.comb += self.measures.eq(1)
            with m.If(measuring.done):
                with m.If(measuring.answer.underflow):
                    self._refuse(m, TrainerError.UNDERFLOW)
                with m.Else():
                    self._measured(m, update)

    def _measured(self, m, update):
        """Take what a `measure` has decided."""
        answer, events = self.measuring.answer, self.events
        m.d.sync += self.again.eq(self.again | answer.again)
        m.d.comb += [self.clear_summary.eq(update), self.dispatcher.forget_named.eq(update),
                     events.changes.eq(answer.changes)]
        with m.If(answer.stands):
            m.d.comb += [events[name].eq(self.summary[name]) for name in ("steps", "rounded", "saturations")]
        self._next(m)

    def _sum(self, m):
        """Store the rows to the core's region, and add those of other members."""
        dispatcher, i, member, left = self.dispatcher, self.i[TrainerOp.SUM], Signal(3), Signal(CORES)
        idle = dispatcher.idle & self.quiet
        with m.State("SUM"):
            m.d.sync += [left.eq(i["cores"]), member.eq(0)]
            m.d.comb += dispatcher.first_place.eq(1)
            with m.If(i["cores"].any() & ~i["cores"].bit_select(self.number, 1)):
                self._refuse(m, TrainerError.PEER)
            with m.Else():
                m.next = "OWN"
        with m.State("OWN"):  # goes to the region of the core among those of the members
            m.d.sync += [left.eq(left >> 1), member.eq(member + 1)]
            m.d.comb += dispatcher.next_place.eq(left[0])
            with m.If(member == self.number):
                m.d.comb += dispatcher.next_place.eq(0)
                m.next = "STORE"
        with m.State("STORE"):
            with m.If(idle):
                m.d.comb += dispatcher.transfer.eq(1)
                m.next = "STORED"
        with m.State("STORED"):
            m.d.sync += [left.eq(i["cores"]), member.eq(0)]
            m.d.comb += dispatcher.first_place.eq(1)
            with m.If(idle):
                self._meet(m, i["cores"], TrainerOp.SUM, "OTHER")
        with m.State("OTHER"):
            with m.If(left == 0):
                with m.If(idle):
                    self._meet(m, i["cores"], TrainerOp.SUM, "PASSED")
            with m.Elif(left[0] & (member != self.number)):
                m.next = "ADD"
            with m.Else():
                m.d.sync += [left.eq(left >> 1), member.eq(member + 1)]
                m.d.comb += dispatcher.next_place.eq(left[0])
        with m.State("ADD"):
            m.d.comb += dispatcher.added.eq(1)
            with m.If(idle):
                m.d.sync += [left.eq(left >> 1), member.eq(member + 1)]
                m.d.comb += [dispatcher.transfer.eq(1), dispatcher.next_place.eq(1)]
                m.next = "OTHER"

    def _stop(self, m):
        """Let what is in flight end; an access that failed is an error of an earlier instruction."""
        with m.State("STOP"):
            with m.If(self.dispatcher.idle & self.quiet):
                m.d.sync += [self.progress.running.eq(0), self.progress.done.eq(1),
                             self.progress.error.eq(Mux(self.broken, TrainerError.MEMORY, self.error))]
                m.next = "STOPPED"
