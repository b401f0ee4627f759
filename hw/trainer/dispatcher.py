"""Brings an instruction to its engine: checks its views, finds what it must wait for, and makes its job."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import loaded_sum
from concord.hw.trainer.bases import BASE
from concord.hw.trainer.exponent_table import NUMBER, Merged
from concord.hw.trainer.extent_finder import ExtentFinder
from concord.hw.trainer.hazards import ENGINES, Hazards
from concord.hw.trainer.instruction_decoder import SLOTS, Kind, fields
from concord.hw.trainer.job_queue import JobQueue
from concord.hw.trainer.jobs import (
    JOBS,
    Parts,
    copy_job,
    is_there,
    pooling_job,
    product_job,
    share_job,
    update_job,
    view_of,
)
from concord.hw.trainer.measure import LSB, ExponentState
from concord.hw.trainer.operand_rules import SUMS, Counts, OperandRules
from concord.hw.trainer.resolver import Resolver
from concord.hw.trainer.trainer_registers import Rate
from concord.hw.trainer.view_table import ViewTable
from concord.hw.trainer.wires import LENGTH, Ended
from concord.spec.trainer.config import LANES, TrainerConfig
from concord.spec.trainer.instructions import WORD, Space, TrainerError, TrainerOp

#: Exponents that the updates before have named, if there were any since the last `measure` of the kind update.
Named = data.StructLayout({"there": 1, "ew": NUMBER, "ev": NUMBER, "eg": NUMBER})


class Dispatcher(wiring.Component):
    """Dispatches instructions that engines execute, one after the other.

    A refused instruction moves nothing: it is SIZE, RANGE or MISMATCH, the smallest code of those that apply.

    Args:
        config: Sizes.

    Members:
        word, kind, views, exponents: In. The instruction, as `InstructionDecoder` has it; held from `start` to `done`.
        start: In(1). An instruction begins. done: Out(1). Pulse: its job waits for its engine, or it is refused.
        error: Out(4). Code of `spec.trainer.instructions.TrainerError`, with `done`.
        outlasts: Out(1). With `done`: what follows must wait until it has ended, as it reads or writes exponents.
        outside: Out(1). It writes to server memory; holds until the next start.
        write_view, clear_views: In(1). A `tensor` writes its view; no view is written.
        transfer: In(1). added: In(1). The core's rows go to the present region of a `sum`, or are added from there.
        first_place, next_place: In(1). The region of the first member is the present one, or that of the next member.
        base_number: Out(5). base: In(signed(32)). A base register, one cycle later.
        number: Out(6). state: In(ExponentState). An exponent, one cycle later.
        unit: Out(1). lsb: Out. Exponent `number` gets sums of this unit.
        limit: In(32). rate, decay: In(Rate). Registers.
        named: Out(Named). forget_named: In(1). A `measure` of the kind update, or nobody, has taken the summary.
        load, store, move, tensor, pooling, update: Out(stream of a job). Jobs of the engines.
        ended: In(Ended for each engine). momentum: In. Length of T, with the end of an update.
        merge: Out(stream of Merged). What instructions have measured.
        measuring, idle: Out(1). An instruction that measures, or none at all, is in flight.
    """

    def __init__(self, config: TrainerConfig):
        self.config = config
        super().__init__({
            "word": In(2 * WORD), "kind": In(Kind), "views": In(data.ArrayLayout(5, SLOTS)),
            "exponents": In(data.ArrayLayout(NUMBER, 4)), "start": In(1), "done": Out(1), "error": Out(4),
            "outlasts": Out(1), "outside": Out(1), "write_view": In(1), "clear_views": In(1),
            "transfer": In(1), "added": In(1), "first_place": In(1), "next_place": In(1), "base_number": Out(5),
            "base": In(signed(BASE)),
            "number": Out(NUMBER), "state": In(ExponentState), "unit": Out(1), "lsb": Out(LSB), "limit": In(32),
            "rate": In(Rate), "decay": In(Rate), "named": Out(Named), "forget_named": In(1),
            **{name: Out(stream.Signature(job)) for name, job in JOBS.items()},
            "ended": In(data.ArrayLayout(Ended, len(ENGINES))), "momentum": In(LENGTH),
            "merge": Out(stream.Signature(Merged)), "measuring": Out(1), "idle": Out(1)})

    def elaborate(self, platform):
        m = Module()
        self.i = {op: fields(self.word, op) for op in TrainerOp}
        self.slot, self.parts, self.held = Signal(range(SLOTS + 1)), Signal(Parts), Signal(Parts["views"].shape)
        self.states = Signal(data.ArrayLayout(ExponentState, 4))
        self.wrong_size, self.wrong_range = Signal(), Signal()
        self._units(m)
        self._facts(m)
        self._reach(m)
        self._jobs(m, platform)
        self._read_exponents(m)
        self._steps(m)
        return m

    def _units(self, m):
        """Connect the units with the instruction and with each other."""
        m.submodules.views = self.table = ViewTable(self.config.views)
        m.submodules.rules = self.rules = OperandRules()
        m.submodules.extents = self.extents = ExtentFinder()
        m.submodules.hazards = self.hazards = Hazards()
        m.submodules.resolver = self.resolver = Resolver()
        self.counts = [Signal(Counts, name=f"counts{slot}") for slot in range(2)]
        table, rules, hazards, resolver, parts = self.table, self.rules, self.hazards, self.resolver, self.parts
        m.d.comb += [
            table.clear.eq(self.clear_views), table.write.eq(self.write_view), table.word.eq(self.word),
            table.write_number.eq(self.i[TrainerOp.TENSOR]["v"]),
            table.number.eq(Mux(self.slot == SUMS, self.views[0], Array(self.views)[self.slot])),
            rules.word.eq(self.word), rules.kind.eq(self.kind), rules.slot.eq(self.slot), rules.view.eq(table.view),
            rules.there.eq(table.there), rules.first.eq(self.counts[0]), rules.second.eq(self.counts[1]),
            rules.base.eq(self.base), rules.rows.eq(self.extents.extent.rows),
            self.extents.use.eq(rules.use), self.base_number.eq(table.view.base),
            hazards.ended.eq(self.ended), hazards.momentum.eq(self.momentum), self.measuring.eq(hazards.measuring),
            self.idle.eq(hazards.idle),
            resolver.kind.eq(self.kind), resolver.states.eq(self.states), resolver.rate.eq(self.rate.exponent),
            resolver.decay.eq(self.decay.exponent), resolver.facts.operand_planes.eq(parts.views[0].planes),
            resolver.facts.bias.eq(parts.there[3] & self.kind.product),
            resolver.facts.shift.eq(Mux(
                self.kind.pool, self.i[TrainerOp.POOL]["shift"], self.i[TrainerOp.POOL_BACK]["shift"])),
            resolver.facts.planes.eq(Mux(
                self.kind.update, 2, Mux(self.kind.product, parts.views[2].planes, parts.views[0].planes))),
            parts.views.eq(self.held), parts.there.eq(Cat(is_there(view) for view in self.views)),
            parts.shifts.eq(resolver.shifts),
            parts.change.eq(self.states[2].change), parts.rate.eq(self.rate), parts.decay.eq(self.decay)]
        wiring.connect(m, hazards.merge, wiring.flipped(self.merge))

    def _facts(self, m):
        """What the instruction does with exponents, and which engine executes it."""
        kind, product, back = self.kind, self.i[TrainerOp.PRODUCT], self.i[TrainerOp.POOL_BACK]
        self.sums, self.plain, self.has_rows = Signal(), Signal(), Signal()
        measured, drained = Signal(), self.parts.there[2]
        converts = (kind.pool & self.i[TrainerOp.POOL]["mean"]) | kind.add | (
            kind.pool_back & (back["mean"] | (back["stride"] < back["size"])))
        m.d.comb += [
            self.parts.converts.eq(converts), measured.eq(converts | (kind.product & drained) | kind.update),
            self.sums.eq(measured | (kind.product & product["mode"])),
            self.plain.eq(kind.product & product["mode"] & product["sum"]),
            self.has_rows.eq(kind.product | kind.update | kind.sum)]
        spaces, source = [view.space for view in self.parts.views], self.parts.there[1]
        m.d.comb += self.outside.eq(spaces[0] == Space.SERVER)
        copies = Mux(self.outside, ENGINES.index("store"), Mux(
            source & (spaces[1] == Space.SERVER), ENGINES.index("load"), ENGINES.index("move")))
        flight = self.hazards.flight
        m.d.comb += [
            flight.engine.eq(Mux(kind.product, ENGINES.index("tensor"), Mux(
                kind.update, ENGINES.index("update"), Mux(kind.copy, copies, ENGINES.index("pooling"))))),
            flight.measures.eq(measured), flight.both.eq(kind.update), flight.momentum.eq(self.exponents[3]),
            flight.measured.eq(Mux(kind.update, self.exponents[1], self.exponents[3])),
            self.outlasts.eq(kind.copy & ((spaces[0] == Space.EXPONENTS) | (
                source & (spaces[1] == Space.EXPONENTS))))]
        with m.If(self.transfer):
            m.d.comb += [flight.engine.eq(Mux(self.added, ENGINES.index("load"), ENGINES.index("store"))),
                         flight.measures.eq(0)]

    def _reach(self, m):
        """The range of a view or of rows, and whether it lies in its memory."""
        config, extent, kind = self.config, self.extents.extent, self.kind
        found, rows, count = self.hazards.range, self.slot == SUMS, Signal(range(1 << 41))
        acc = Mux(kind.product, self.i[TrainerOp.PRODUCT]["acc"], Mux(
            kind.update, self.i[TrainerOp.UPDATE]["acc"], self.i[TrainerOp.SUM]["acc"]))
        columns = kind.product & self.i[TrainerOp.PRODUCT]["mode"]
        held, self.known = self.rules.first.rows, Signal()
        m.d.comb += self.known.eq(~(columns | kind.sum))  # as many rows as a view has
        m.d.comb += count.eq(Mux(columns | kind.sum, extent.rows, Mux(
            kind.update & self.i[TrainerOp.UPDATE]["bias"], held << 4, held)))
        size, leaves, end = Signal(32), Signal(), Signal(range(1 << 42))
        m.d.comb += end.eq(acc + count)
        with m.Switch(self.table.view.space):
            for space, words in ((Space.CHIP, config.words), (Space.SERVER, self.limit),
                                 (Space.EXPONENTS, config.exponents // LANES),
                                 (Space.ACCUMULATORS, config.accumulator_rows)):
                with m.Case(space):
                    m.d.comb += size.eq(words)
        m.d.comb += leaves.eq(~extent.empty & (extent.low[-1] | (extent.high >= size)))
        self.refused = Signal()
        m.d.comb += self.refused.eq(Mux(rows, end > config.accumulator_rows, self.rules.range | leaves | (
            self.rules.aligned & ~extent.aligned)))
        m.d.comb += [
            found.space.eq(Mux(rows, Space.ACCUMULATORS, self.table.view.space)),
            found.low.eq(Mux(rows, acc, extent.low)), found.high.eq(Mux(rows, end - 1, extent.high)),
            found.written.eq(Mux(rows, kind.product, self.rules.written)),
            # An operand of `add` that is y itself is read ahead of the word that replaces it.
            self.hazards.alone.eq(kind.add & ((self.slot == 1) | (self.slot == 2)) & (
                Array(self.views)[self.slot] == self.views[0]))]

    def _jobs(self, m, platform):
        """A queue for each engine, with the jobs that go into it."""
        self.put, self.queues, hazards = Signal(), {}, self.hazards
        view = self.parts.views[0]
        place = Signal.like(view.first)
        with m.If(self.first_place | self.next_place):
            m.d.sync += place.eq(loaded_sum(m, platform, self.first_place, view.first, place, view.s0))
        full = []
        for number, (name, job) in enumerate(JOBS.items()):
            # Stores wait for engines, so a second one lets the loads behind it go on beside them.
            m.submodules[f"{name}_queue"] = queue = JobQueue(job, two=name == "store")
            wiring.connect(m, queue.o, wiring.flipped(getattr(self, name)))
            chosen = hazards.flight.engine == number
            full.append(chosen & queue.full)
            m.d.comb += [queue.put.eq((self.put | self.transfer) & chosen), queue.active.eq(hazards.active),
                         queue.waits.eq(Mux(self.transfer, 0, hazards.conflicts))]
            self.queues[name] = queue
        self.full = Signal()
        m.d.comb += [self.full.eq(Cat(full).any()), hazards.commit.eq(self.put | self.transfer)]
        for name in ("load", "store", "move"):  # alike, so that one multiplexer makes all of them
            job = self.queues[name].job
            m.d.comb += copy_job(job, self.word, self.parts)
            with m.If(self.transfer):
                m.d.comb += share_job(job, self.word, view, place, self.added)
        m.d.comb += [*product_job(self.queues["tensor"].job, self.word, self.parts),
                     *update_job(self.queues["update"].job, self.word, self.parts)]
        pooling_job(m, self.queues["pooling"].job, self.kind, self.word, self.parts)

    def _read_exponents(self, m):
        """Read the exponents while the first view is looked at."""
        turn = Signal(range(6), init=5)
        m.d.sync += turn.eq(Mux(self.start, 0, Mux(turn == 5, 5, turn + 1)))
        with m.If(turn < 4):
            m.d.comb += self.number.eq(Array(self.exponents)[turn[:2]])
        for k in range(4):
            with m.If(turn == k + 1):
                m.d.sync += self.states[k].eq(self.state)

    def _steps(self, m):
        """One view after the other, then exponents, then the job."""
        hazards, extents, waited = self.hazards, self.extents, Signal(range(Resolver.LATENCY + 1))
        turn, last = Signal(range(SLOTS + 2)), Signal()
        # Of products, b comes ahead of a: in the mode columns, a has as many words as b has rows.
        m.d.comb += self.slot.eq(Mux(self.kind.product & (turn < 2), 1 - turn, turn))
        there = Signal()
        m.d.comb += there.eq(Mux(self.slot == SUMS, self.has_rows, is_there(Array(self.views)[self.slot])))
        m.d.comb += last.eq(turn == SUMS)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [turn.eq(0), waited.eq(0), self.wrong_size.eq(0), self.wrong_range.eq(0)]
                with m.If(self.start):
                    m.next = "RESERVE"
            with m.State("RESERVE"):
                m.d.comb += hazards.reserve.eq(hazards.free)  # without a slot, that of the last one would be cleared
                with m.If(hazards.free):
                    m.next = "VIEW"
            with m.State("VIEW"):
                m.next = "BASE"
                with m.If(last & self.known):
                    m.next = "CHECK"
                with m.If(~there):
                    m.d.sync += turn.eq(turn + 1)
                    m.next = "VIEW"
                    with m.If(last):
                        m.next = "EXPONENTS"
            with m.State("BASE"):
                m.next = "EXTENT"
            with m.State("EXTENT"):
                m.d.comb += extents.start.eq(1)
                m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(extents.done):
                    m.next = "CHECK"
            with m.State("CHECK"):
                with m.If(~hazards.busy):
                    self._take(m)
                    m.d.sync += turn.eq(turn + 1)
                    m.next = "VIEW"
                    with m.If(last):
                        m.next = "EXPONENTS"
            with m.State("EXPONENTS"):
                with m.If(waited != Resolver.LATENCY):
                    m.d.sync += waited.eq(waited + 1)
                with m.Elif(~hazards.busy):
                    m.next = "JUDGE"
            with m.State("JUDGE"):
                self._judge(m)
            with m.State("PLAIN"):
                m.d.comb += [self.number.eq(Mux(self.kind.update, self.exponents[1], self.exponents[2])),
                             self.lsb.eq(Mux(self.kind.update, self.states[1].lsb, self.resolver.plain)),
                             self.unit.eq(self.plain | self.kind.update), self.done.eq(1)]
                m.next = "IDLE"
        with m.If(self.forget_named):
            m.d.sync += self.named.there.eq(0)

    def _take(self, m):
        """Keep what was found of a view or of rows."""
        extent, rows = self.extents.extent, self.slot == SUMS
        m.d.sync += [self.wrong_size.eq(self.wrong_size | self.rules.size),
                     self.wrong_range.eq(self.wrong_range | self.refused)]
        m.d.comb += self.hazards.note.eq(Mux(rows, ~self.kind.sum, ~extent.empty))
        for slot, view in enumerate(self.held):
            with m.If(self.slot == slot):
                m.d.sync += [view[name].eq(value) for name, value in view_of(self.table.view, extent)]
        for slot, held in enumerate(self.counts):
            with m.If(self.slot == slot):
                m.d.sync += [held[name].eq(extent.rows if name == "rows" else self.table.view[name])
                             for name in Counts.members]

    def _judge(self, m):
        """Refuse the instruction, or let it go as soon as its engine has room for a job."""
        i, named, exponents = self.i[TrainerOp.UPDATE], self.named, self.exponents
        numbers = Cat(i["ew"], i["ev"], i["eg"])
        other = self.kind.update & named.there & (Cat(named.ew, named.ev, named.eg) != numbers)
        differs = (self.sums & self.resolver.differs) | (self.plain & self.resolver.plain_differs) | other
        wrong = Mux(self.wrong_size, TrainerError.SIZE, Mux(
            self.wrong_range | self.hazards.meets, TrainerError.RANGE, Mux(differs, TrainerError.MISMATCH, 0)))
        m.d.comb += [self.number.eq(exponents[3]), self.lsb.eq(self.resolver.lsb)]
        with m.If(wrong.any() | self.kind.sum):
            m.d.comb += [self.error.eq(wrong), self.done.eq(1)]
            m.next = "IDLE"
        with m.Elif(~self.full):
            m.d.comb += [self.put.eq(1), self.unit.eq(self.sums)]
            with m.If(self.kind.update):
                m.d.sync += [named.there.eq(1), *(named[name].eq(i[name]) for name in ("ew", "ev", "eg"))]
            m.next = "PLAIN"
