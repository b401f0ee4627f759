"""Mantissas of a pooling engine, brought into words and written."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.reserved_queue import ReservedQueue
from concord.hw.trainer.all_blocks import all_blocks
from concord.hw.trainer.pooling_lanes import PoolingRow
from concord.hw.trainer.pooling_reads import GROUP, ROWS
from concord.hw.trainer.wires import COUNT, POOL, ChipWrite, PoolingJob, Word
from concord.spec.trainer.config import LANES

_MANTISSA = 16  #: Bits of a mantissa.
#: Mantissas of a group of a row, which may be the last one. `live` has the mask of their lanes.
GroupMantissas = data.StructLayout({
    "valid": 1, "mantissas": data.ArrayLayout(signed(_MANTISSA), GROUP), "live": GROUP, "last": 1})


class PoolingWrites(wiring.Component):
    """Write the rows of y, each with its second plane, or with what it has chosen.

    Members:
        job: In(PoolingJob). Held from `start` until `done`.
        start: In(1). Pulse: the job begins.
        i: In(GroupMantissas). Where the job converts: mantissas before relu and mask; at most ROWS rows wait.
        row: In({valid, row}). Rows, of which totals are mantissas where the job does not convert, and the numbers
            beside them are what windows have chosen where the job has that.
        write: Out(stream of ChipWrite). Words.
        written: Out(1). Pulse for each row that has left room for another one.
        done: Out(1). Pulse: the last word of the job was taken.

    Timing:
        A word every cycle.
    """

    def __init__(self):
        super().__init__({
            "job": In(PoolingJob), "start": In(1), "i": In(GroupMantissas),
            "row": In(data.StructLayout({"valid": 1, "row": PoolingRow})),
            "write": Out(stream.Signature(ChipWrite)), "written": Out(1), "done": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.first = self.first = ReservedQueue(Word, ROWS, deep=True)
        m.submodules.second = self.second = ReservedQueue(Word, ROWS, deep=True)
        self._gather(m)
        job, full, ending = self.job, Signal(), Signal()  # `full`: a word waits; `ending`: it is the last one
        pair, second, row = Signal(), Signal(), Signal()  # `pair`: rows have a second word; `second`: it is next
        there, load, free = Signal(), Signal(), self.write.ready | ~full
        y = all_blocks(m, platform, "y", job.y, self.start, row)
        chosen = all_blocks(m, platform, "chosen", job.chosen.view, self.start, row)
        blocks, choosing = Signal(COUNT), (job.kind == POOL) & job.chosen.there
        m.d.comb += [
            pair.eq(choosing | (job.y.planes == 2)), there.eq(Mux(second, self.second.o.valid, self.first.o.valid)),
            load.eq(there & free), row.eq(load & (second | ~pair)), self.first.o.ready.eq(free & ~second),
            self.second.o.ready.eq(free & second), y.offset.eq(Mux(second, job.y.plane, 0)),
            self.write.valid.eq(full), self.done.eq(full & self.write.ready & ending)]
        with m.If(free):
            m.d.sync += [
                full.eq(there), self.write.p.word.eq(Mux(second & choosing, chosen.word, y.word)),
                self.write.p.bytes.eq(Mux(second, self.second.o.p, self.first.o.p)),
                ending.eq(row & y.last & (blocks == 1))]
        with m.If(self.start):
            m.d.sync += [second.eq(0), blocks.eq(job.y.blocks)]
        with m.Elif(load):
            m.d.sync += [second.eq(pair & ~second), blocks.eq(blocks - (row & y.last))]
        m.d.sync += self.written.eq(row)
        return m

    def _gather(self, m):
        """Bring rows into words: the low bytes, and the high ones or what was chosen."""
        job, i, row = self.job, self.i, self.row.row
        before, live = Signal((LANES - GROUP) * _MANTISSA), Signal(LANES - GROUP)
        gathered, lives = Cat(before, i.mantissas), Cat(live, i.live)
        with m.If(i.valid):
            m.d.sync += [before.eq(gathered[GROUP * _MANTISSA:]), live.eq(lives[GROUP:])]
        numbers, valid = [], Mux(job.converts, i.valid & i.last, self.row.valid)
        for k in range(LANES):
            number = Mux(job.converts, gathered.word_select(k, _MANTISSA), row.totals[k][:_MANTISSA])
            passes = Mux(job.converts, lives[k], row.mask[k]) | ~job.mask.there
            counts = row.counts[k] & ~(job.relu & number[-1])  # all lanes count where sums are converted
            numbers.append(number & (passes & counts).replicate(_MANTISSA))
        m.d.comb += [
            self.first.i.valid.eq(valid), Value.cast(self.first.i.p).eq(Cat(*(number[:8] for number in numbers))),
            self.second.i.valid.eq(Mux(job.kind == POOL, self.row.valid & job.chosen.there,
                                       valid & (job.y.planes == 2))),
            Value.cast(self.second.i.p).eq(Mux(job.kind == POOL, Cat(*(other[:8] for other in row.others)),
                                               Cat(*(number[8:] for number in numbers))))]
