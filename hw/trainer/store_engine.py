"""Copies words of the chip, of accumulators and of exponents, and zeros to server memory."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.dram.burst_writer import ROOM
from concord.hw.lib.outside import Range
from concord.hw.trainer.copy_parts import WalkJob, split
from concord.hw.trainer.range_joiner import RangeJoiner
from concord.hw.trainer.wires import CopyJob, Word, chip_reader, engine, exponent_reader, row_reader
from concord.hw.trainer.word_source import WordSource
from concord.hw.trainer.word_walker import WordWalker, held


class StoreEngine(wiring.Component):
    """Executes copies to server memory.

    Members:
        job, ended: as `wires.engine`. A job has ended when the memory has answered its last burst.
        read, answer, row, sums, exponent, exponents: as `wires.chip_reader`, `wires.row_reader` and
            `wires.exponent_reader`.
        write_range: Out(stream {first, count, tag, last}). Ranges of server memory to write; `last` ends a job.
        write_word: Out(stream of Word). Their words.
        write_room: In. Number of words that `write_word` takes without a stall from now on.
        write_done: In(1). Pulse: a range with `last` was answered, and all ranges before it.

    Timing:
        One word a cycle. The words of a job are read while those of the job before it are written.
    """

    def __init__(self):
        super().__init__({
            **engine(CopyJob), **chip_reader(), **row_reader(), **exponent_reader(),
            "write_range": Out(stream.Signature(Range)), "write_word": Out(stream.Signature(Word)),
            "write_room": In(range(ROOM + 1)), "write_done": In(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.source = source = WordSource(ROOM)
        for name in "read", "row":
            wiring.connect(m, getattr(source, name), wiring.flipped(getattr(self, name)))
        asks = stream.Signature(WalkJob).create(path=("asks",))
        split(m, self.job, source.i, asks)
        m.d.comb += [
            source.answer.eq(self.answer), source.sums.eq(self.sums), source.exponents.eq(self.exponents),
            self.exponent.eq(source.exponent), source.room.eq(self.write_room),
            self.write_word.valid.eq(source.o.valid), self.write_word.p.eq(source.o.bytes),
            self.ended.valid.eq(self.write_done)]
        m.submodules.walker = walker = WordWalker(runs=True)
        m.submodules.joiner = joiner = RangeJoiner()
        job, start = held(m, asks, walker.o.valid & walker.o.ready & walker.o.p.last)
        wiring.connect(m, walker.o, joiner.i)
        run, given = joiner.o, self.write_range
        m.d.comb += [
            walker.view.eq(job.view), walker.by_rows.eq(job.by_rows), walker.start.eq(start),
            given.p.first.eq(run.p.first), given.p.count.eq(run.p.count), given.p.last.eq(run.p.last),
            given.valid.eq(run.valid), run.ready.eq(given.ready)]
        return m
