"""Writes words to a view of on-chip memory, of accumulators or of exponents."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.pipeline import delay_control
from concord.hw.trainer.wires import ROW_ADDS, Ended, View, Word, chip_writer, exponent_writer, row_adder
from concord.hw.trainer.word_walker import WordWalker, held
from concord.spec.trainer.config import LANES, SUM_PLANES
from concord.spec.trainer.instructions import Space

#: What is written. `zeros`: no words come. `add`: they are added to accumulators.
SinkJob = data.StructLayout({"view": View, "by_rows": 1, "zeros": 1, "add": 1})


class WordSink(wiring.Component):
    """Write words in the order of a `WordWalker`. Accumulators are written row by row, all planes and blocks at once.

    Members:
        i: In(stream of SinkJob). Jobs.
        words: In(stream of Word). Their words.
        write, row_add, exponent_write: as `wires.chip_writer`, `wires.row_adder` and `wires.exponent_writer`.
        ended: Out(Ended). Pulse for each job: all that begins later sees its words.

    Timing:
        One word a cycle; of zeros for accumulators, one row. A job takes 5 cycles more, and ROW_ADDS in accumulators.
    """

    def __init__(self):
        super().__init__({
            "i": In(stream.Signature(SinkJob)), "words": In(stream.Signature(Word)), "ended": Out(Ended),
            **chip_writer(), **row_adder(), **exponent_writer()})

    def elaborate(self, platform):
        m = Module()
        m.submodules.walker = walker = WordWalker()
        self.job, start = held(m, self.i, self.ended.valid)
        job, step = self.job, walker.o
        rows, last = job.view.space == Space.ACCUMULATORS.value, Signal()
        m.d.comb += [walker.view.eq(job.view), walker.by_rows.eq(job.by_rows), walker.start.eq(start)]
        with m.If(job.zeros & rows):
            m.d.comb += [walker.view.planes.eq(1), walker.view.blocks.eq(1)]
        outputs = {Space.CHIP: self.write, Space.EXPONENTS: self.exponent_write, Space.ACCUMULATORS: self.row_add}
        there, stuck = (Cat(wire(each) for each in outputs.values()).any() for wire in (
            lambda each: each.valid, lambda each: each.valid & ~each.ready))
        moved, sent = Signal(), Signal()
        m.d.comb += [
            moved.eq(step.valid & (self.words.valid | job.zeros) & ~stuck), step.ready.eq(moved),
            self.words.ready.eq(moved & ~job.zeros), sent.eq(there & ~stuck & last)]
        for space, output in outputs.items():
            whole = step.p.final if space == Space.ACCUMULATORS else 1
            with m.If(~stuck):
                m.d.sync += output.valid.eq(moved & whole & (job.view.space == space.value))
        with m.If(moved):
            m.d.sync += last.eq(step.p.last)
        m.d.comb += self.ended.valid.eq(Mux(rows, delay_control(m, sent & rows, ROW_ADDS), sent))
        bytes_ = Signal(8 * LANES)
        m.d.comb += bytes_.eq(Mux(job.zeros, 0, Value.cast(self.words.p)))
        self._words(m, step.p, moved, bytes_)
        self._rows(m, step.p, moved, bytes_)
        return m

    def _words(self, m, step, moved, bytes_):
        """Words of the chip and of exponents have their registers in common."""
        word, held_bytes = Signal.like(step.word), Signal.like(bytes_)
        with m.If(moved):
            m.d.sync += [word.eq(step.word), held_bytes.eq(bytes_)]
        for output in self.write.p, self.exponent_write.p:
            m.d.comb += [output.word.eq(word), Value.cast(output.bytes).eq(held_bytes)]
        m.d.comb += self.row_add.p.row.eq(word)

    def _rows(self, m, step, moved, bytes_):
        """Gather the planes of a row; zeros fill all of them at once."""
        add, job = self.row_add.p, self.job
        m.d.comb += [add.fresh.eq(~job.add), add.lanes.eq(1), add.plain.eq(job.view.blocks == 2)]
        for plane in range(SUM_PLANES):
            for block, lanes in enumerate((range(LANES), (LANES,))):
                part = Signal(8 * len(lanes), name=f"part{plane}_{block}")
                with m.If(moved & (job.zeros | ((step.plane == plane) & (step.block == block)))):
                    m.d.sync += part.eq(bytes_)
                for k, lane in enumerate(lanes):
                    sums = Value.cast(add.sums[lane]).word_select(plane, 8)
                    m.d.comb += sums.eq(part.word_select(k, 8))
