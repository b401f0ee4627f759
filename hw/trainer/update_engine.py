"""The engine that updates parameters: rows of gradients and of old parameters to rows of new ones."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.reserved_queue import ReservedQueue
from concord.hw.trainer.parameter_gather import ParameterGather
from concord.hw.trainer.parameter_words import ParameterWords
from concord.hw.trainer.update_lanes import UpdateLanes
from concord.hw.trainer.update_summary import UpdateSummary
from concord.hw.trainer.wires import LENGTH, Summary, UpdateJob, Word, chip_reader, chip_writer, engine, row_reader
from concord.hw.trainer.word_walker import WordWalker, held

AHEAD = 16  #: Words that are asked for and not used yet, and words that wait to be written.
_MARGIN = 4  # words that may still come when the lanes have been told to wait


class UpdateEngine(wiring.Component):
    """Executes updates, one after the other.

    Members:
        job, ended: as `wires.engine`. The length of a job is that of S.
        momentum: Out(LENGTH). The length of T, with `ended`.
        read, answer: as `wires.chip_reader`, for old parameters.
        write: as `wires.chip_writer`, for new parameters.
        row, sums: as `wires.row_reader`, for gradients.
        summary: Out(Summary). Of all jobs since `clear`, when no job is under way.
        clear: In(1). The summary begins anew. It comes when no job is under way.

    Timing:
        8 cycles a row, 48 with `bias`, and 69 for each job.
    """

    def __init__(self):
        super().__init__({
            **engine(UpdateJob), "momentum": Out(LENGTH), **chip_reader(), **chip_writer(), **row_reader(),
            "summary": Out(Summary), "clear": In(1)})

    def elaborate(self, platform):
        m = Module()
        # The lanes have no handshakes: all of them stand still while too many words wait to be written.
        go = Signal(init=1)
        stands = EnableInserter(go)
        lanes, made, summary = UpdateLanes(), ParameterWords(), UpdateSummary()
        m.submodules.lanes, m.submodules.made, m.submodules.summary = stands(lanes), stands(made), stands(summary)
        m.submodules.gather = gather = ParameterGather()
        job, start = held(m, self.job, self.ended.valid)
        m.d.comb += [
            gather.start.eq(start), gather.acc.eq(job.acc), gather.bias.eq(job.bias), gather.go.eq(go),
            lanes.job.eq(job), lanes.i.eq(gather.o), made.i.eq(lanes.o), summary.met.eq(lanes.met),
            summary.begin.eq(start), summary.clear.eq(self.clear), self.summary.eq(summary.summary),
            self.ended.length.eq(summary.gradient), self.momentum.eq(summary.momentum)]
        wiring.connect(m, gather.row, wiring.flipped(self.row))
        m.d.comb += gather.sums.eq(self.sums)
        self._read(m, job, start, gather.words)
        self._write(m, job, start, made.o, go)
        return m

    def _read(self, m, job, start, words):
        """Ask for the words of old parameters as long as there is room for them."""
        m.submodules.reads = walker = WordWalker()
        m.submodules.old = old = ReservedQueue(Word, AHEAD, deep=True)
        wiring.connect(m, old.o, words)
        step, inside, room = walker.o, Signal(range(AHEAD + 1)), Signal()
        m.d.comb += [
            walker.view.eq(job.old), walker.by_rows.eq(1), walker.start.eq(start), room.eq(inside != AHEAD),
            self.read.valid.eq(step.valid & room), step.ready.eq(self.read.ready & room),
            self.read.p.word.eq(step.p.word), self.read.p.zeros.eq(~step.p.inside),
            old.i.valid.eq(self.answer.valid), old.i.payload.eq(self.answer.bytes)]
        m.d.sync += inside.eq(inside + (self.read.valid & self.read.ready) - (words.valid & words.ready))

    def _write(self, m, job, start, made, go):
        """Write the words of new parameters."""
        m.submodules.writes = walker = WordWalker()
        m.submodules.new = new = ReservedQueue(Word, AHEAD, deep=True)
        step, inside, taken = walker.o, Signal(range(AHEAD + 1)), Signal()
        m.d.comb += [
            walker.view.eq(job.new), walker.by_rows.eq(1), walker.start.eq(start),
            new.i.valid.eq(made.valid & go), new.i.payload.eq(made.bytes),
            self.write.valid.eq(new.o.valid), self.write.p.word.eq(step.p.word), self.write.p.bytes.eq(new.o.payload),
            taken.eq(self.write.valid & self.write.ready), new.o.ready.eq(self.write.ready), step.ready.eq(taken),
            self.ended.valid.eq(taken & step.p.last)]
        m.d.sync += [inside.eq(inside + new.i.valid - taken), go.eq(inside < AHEAD - _MARGIN)]
