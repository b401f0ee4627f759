"""The pooling engine of a trainer: `pool`, `pool_back` and `add`."""

from amaranth import *
from amaranth.lib import wiring
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.lib.queue import Queue
from concord.hw.trainer.pooling_lanes import PoolingLanes
from concord.hw.trainer.pooling_reads import GROUP, PoolingRead, PoolingReads
from concord.hw.trainer.pooling_sums import PoolingSums
from concord.hw.trainer.pooling_writes import PoolingWrites
from concord.hw.trainer.sum_converter import LENGTH_CYCLES, SumConverter, length
from concord.hw.trainer.wires import CHIP_LATENCY, MEASURED, PoolingJob, chip_reader, chip_writer, engine
from concord.hw.trainer.word_walker import held

_PLANES = 2  #: Most planes of y.


class PoolingEngine(wiring.Component):
    """Takes the largest byte or the mean of windows, sends gradients back to them, and adds tensors.

    Words go through four units: `PoolingReads` asks for them, `PoolingLanes` makes rows, `PoolingSums` and a converter
    make mantissas, and `PoolingWrites` writes them. Mantissas that keep their exponent go from rows to words.

    Members:
        job, ended: As `wires.engine`. A job is taken when the one before has ended.
        read, answer: As `wires.chip_reader`.
        write: As `wires.chip_writer`.

    Timing:
        A word in and a word out every cycle. A row that is converted takes four cycles; eight where more than four
        windows may hold a pixel.
    """

    def __init__(self):
        super().__init__({**engine(PoolingJob), **chip_reader(), **chip_writer()})

    def elaborate(self, platform):
        m = Module()
        m.submodules.reads, m.submodules.lanes, m.submodules.sums = reads, lanes, sums = (
            PoolingReads(), PoolingLanes(), PoolingSums())
        m.submodules.converter, m.submodules.writes = converter, writes = SumConverter(GROUP, _PLANES), PoolingWrites()
        m.submodules.queue = queue = Queue(PoolingRead, 3)
        job, start = held(m, self.job, self.ended.valid)
        m.d.comb += [unit.job.eq(job) for unit in (reads, lanes, sums, writes)]
        m.d.comb += [reads.start.eq(start), reads.written.eq(writes.written), writes.start.eq(start)]

        wiring.connect(m, reads.o, queue.i)
        m.d.comb += [
            self.read.valid.eq(queue.o.valid), queue.o.ready.eq(self.read.ready),
            self.read.p.word.eq(queue.o.p.word), self.read.p.zeros.eq(queue.o.p.zeros),
            lanes.i.eq(self.answer), lanes.tag.eq(delay(m, queue.o.p.tag, CHIP_LATENCY)), writes.row.eq(lanes.o),
            sums.i.row.eq(lanes.o.row), sums.i.valid.eq(lanes.o.valid & job.converts)]

        m.d.comb += [
            converter.i.valid.eq(sums.o.valid), converter.i.sums.eq(sums.o.sums), converter.i.planes.eq(job.y.planes),
            converter.i.right.eq(job.right),
            writes.i.valid.eq(converter.o.valid), writes.i.mantissas.eq(converter.o.mantissas),
            writes.i.live.eq(delay(m, sums.o.live, converter.latency)),
            writes.i.last.eq(delay(m, sums.o.last, converter.latency))]
        wiring.connect(m, writes.write, wiring.flipped(self.write))

        found = Signal(MEASURED)
        with m.If(start):
            m.d.sync += found.eq(0)
        with m.Elif(converter.o.valid):
            m.d.sync += found.eq(found | converter.o.found)
        m.d.comb += [self.ended.valid.eq(delay_control(m, writes.done, LENGTH_CYCLES)),
                     self.ended.length.eq(length(m, found))]
        return m
