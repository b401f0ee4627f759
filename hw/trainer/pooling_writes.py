"""Mantissas of a pooling engine, brought into words and written."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.reserved_queue import ReservedQueue
from concord.hw.trainer.all_blocks import all_blocks
from concord.hw.trainer.pooling_reads import ROWS
from concord.hw.trainer.pooling_sums import HALF
from concord.hw.trainer.wires import COUNT, POOL, ChipWrite, PoolingJob, Word
from concord.spec.trainer.config import LANES

#: Mantissas of one half of a row. `live` has the mask of their lanes; `upper` is the half of lanes 8 to 15.
HalfMantissas = data.StructLayout({
    "valid": 1, "mantissas": data.ArrayLayout(signed(16), HALF), "live": HALF, "upper": 1})
#: Which places the windows of a row have chosen.
Places = data.StructLayout({"valid": 1, "bytes": Word})


class PoolingWrites(wiring.Component):
    """Write the rows of y, each with its second plane, or with what it has chosen.

    Members:
        job: In(PoolingJob). Held from `start` until `done`.
        start: In(1). Pulse: the job begins.
        i: In(HalfMantissas). Mantissas before relu and mask; at most ROWS rows wait.
        places: In(Places). What rows have chosen, in their order, where the job has it.
        write: Out(stream of ChipWrite). Words.
        written: Out(1). Pulse for each row that has left room for another one.
        done: Out(1). Pulse: the last word of the job was taken.

    Timing:
        A word every cycle.
    """

    def __init__(self):
        super().__init__({
            "job": In(PoolingJob), "start": In(1), "i": In(HalfMantissas), "places": In(Places),
            "write": Out(stream.Signature(ChipWrite)), "written": Out(1), "done": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.first = self.first = ReservedQueue(Word, ROWS)
        m.submodules.second = self.second = ReservedQueue(Word, ROWS)
        self._gather(m)
        job, full, ending = self.job, Signal(), Signal()  # `full`: a word waits; `ending`: it is the last one
        pair, second, row = Signal(), Signal(), Signal()  # `pair`: rows have a second word; `second`: it is next
        there, load, free = Signal(), Signal(), self.write.ready | ~full
        y = all_blocks(m, "y", job.y, self.start, row)
        chosen = all_blocks(m, "chosen", job.chosen.view, self.start, row)
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
        """Bring both halves of a row into words: the low bytes, and the high ones or what was chosen."""
        job, i, lower = self.job, self.i, Signal(data.ArrayLayout(16, HALF))
        halves = [Mux(live & ~(job.relu & mantissa[-1]), mantissa, 0)
                  for live, mantissa in zip(i.live | ~job.mask.there.replicate(HALF), i.mantissas, strict=True)]
        with m.If(i.valid & ~i.upper):
            m.d.sync += Value.cast(lower).eq(Cat(*(half[:16] for half in halves)))
        whole = [*lower, *halves]
        m.d.comb += [
            self.first.i.valid.eq(i.valid & i.upper),
            Value.cast(self.first.i.p).eq(Cat(*(number[:8] for number in whole))),
            self.second.i.valid.eq(Mux(job.kind == POOL, self.places.valid & job.chosen.there,
                                       i.valid & i.upper & (job.y.planes == 2))),
            Value.cast(self.second.i.p).eq(Mux(job.kind == POOL, Value.cast(self.places.bytes),
                                               Cat(*(number[8:16] for number in whole))))]
        assert len(whole) == LANES
