"""Copies words of server memory to the chip, to accumulators and to exponents."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.outside import Range
from concord.hw.lib.queue import Queue
from concord.hw.trainer.copy_parts import WalkJob, buffered, split
from concord.hw.trainer.range_joiner import RangeJoiner, Run
from concord.hw.trainer.wires import CopyJob, Word, chip_writer, engine, exponent_writer, row_adder
from concord.hw.trainer.word_sink import WordSink
from concord.hw.trainer.word_walker import WordWalker, held

RUNS = 32  #: Runs that are asked for, or of zeros that wait: as many as bursts may be under way.


class LoadEngine(wiring.Component):
    """Executes copies whose source lies in server memory.

    Members:
        job, ended: as `wires.engine`. A job has ended when its last word is written on the chip.
        read_range: Out(stream {first, count, tag, last}). Ranges of server memory to read.
        words: In(stream of Word). Their words.
        write, row_add, exponent_write: as `wires.chip_writer`, `wires.row_adder` and `wires.exponent_writer`.

    Timing:
        One word a cycle. The words of a job are asked for while those of the job before it come.
    """

    def __init__(self):
        super().__init__({
            **engine(CopyJob), "read_range": Out(stream.Signature(Range)), "words": In(stream.Signature(Word)),
            **chip_writer(), **row_adder(), **exponent_writer()})

    def elaborate(self, platform):
        m = Module()
        m.submodules.sink = sink = WordSink()
        m.submodules.runs = runs = Queue(Run, RUNS)
        asks = stream.Signature(WalkJob).create(path=("asks",))
        split(m, self.job, asks, buffered(m, sink.i))
        self._ask(m, asks, runs.i)
        self._give(m, runs.o, sink.words)
        for name in "write", "row_add", "exponent_write":
            wiring.connect(m, getattr(sink, name), wiring.flipped(getattr(self, name)))
        m.d.comb += self.ended.eq(sink.ended)
        return m

    def _ask(self, m, asks, runs):
        """Ask for the ranges of jobs, and remember where zeros lie between them."""
        m.submodules.walker = walker = WordWalker(runs=True)
        m.submodules.joiner = joiner = RangeJoiner()
        job, start = held(m, asks, walker.o.valid & walker.o.ready & walker.o.p.last)
        wiring.connect(m, walker.o, joiner.i)
        run, given = joiner.o, self.read_range
        m.d.comb += [
            walker.view.eq(job.view), walker.by_rows.eq(job.by_rows), walker.start.eq(start),
            given.p.first.eq(run.p.first), given.p.count.eq(run.p.count), runs.p.eq(run.p),
            given.valid.eq(run.valid & run.p.inside & runs.ready),
            runs.valid.eq(run.valid & (given.ready | ~run.p.inside)),
            run.ready.eq(runs.ready & (given.ready | ~run.p.inside))]

    def _give(self, m, run, words):
        """Give the words of the runs, read ones and zeros."""
        left, begun, now, moved = Signal.like(run.p.count), Signal(), Signal.like(run.p.count), Signal()
        m.d.comb += [
            now.eq(Mux(begun, left, run.p.count)), words.valid.eq(run.valid & (self.words.valid | ~run.p.inside)),
            Value.cast(words.p).eq(Mux(run.p.inside, Value.cast(self.words.p), 0)), moved.eq(words.valid & words.ready),
            self.words.ready.eq(moved & run.p.inside), run.ready.eq(moved & (now == 1))]
        with m.If(moved):
            m.d.sync += [left.eq(now - 1), begun.eq(now != 1)]
