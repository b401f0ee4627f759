"""Copies words between on-chip memory, accumulators and exponents, and writes zeros and patches there."""

from amaranth import *
from amaranth.lib import wiring
from concord.hw.lib.queue import Queue
from concord.hw.trainer.copy_parts import split
from concord.hw.trainer.wires import (
    CopyJob,
    Word,
    chip_reader,
    chip_writer,
    engine,
    exponent_reader,
    exponent_writer,
    row_adder,
    row_reader,
)
from concord.hw.trainer.word_sink import WordSink
from concord.hw.trainer.word_source import WordSource

WAITING = 16  #: Words that are under way or wait: as many as let one go each cycle.


class MoveEngine(wiring.Component):
    """Executes copies in which server memory has no part.

    Members:
        job, ended: as `wires.engine`.
        read, answer, row, sums, exponent, exponents: as `wires.chip_reader`, `wires.row_reader` and
            `wires.exponent_reader`.
        write, row_add, exponent_write: as `wires.chip_writer`, `wires.row_adder` and `wires.exponent_writer`.

    Timing:
        One word a cycle; of zeros for accumulators, one row.
    """

    def __init__(self):
        super().__init__({
            **engine(CopyJob), **chip_reader(), **row_reader(), **exponent_reader(), **chip_writer(), **row_adder(),
            **exponent_writer()})

    def elaborate(self, platform):
        m = Module()
        m.submodules.source = source = WordSource(WAITING, patches=True)
        m.submodules.sink = sink = WordSink()
        m.submodules.words = words = Queue(Word, WAITING)
        split(m, self.job, source.i, sink.i)
        wiring.connect(m, words.o, sink.words)
        for unit, names in (source, ("read", "row")), (sink, ("write", "row_add", "exponent_write")):
            for name in names:
                wiring.connect(m, getattr(unit, name), wiring.flipped(getattr(self, name)))
        m.d.comb += [
            source.answer.eq(self.answer), source.sums.eq(self.sums), source.exponents.eq(self.exponents),
            self.exponent.eq(source.exponent), source.room.eq(WAITING - words.level),
            words.i.valid.eq(source.o.valid), words.i.p.eq(source.o.bytes), self.ended.eq(sink.ended)]
        return m
