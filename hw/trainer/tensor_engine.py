"""The tensor engine of a trainer: executes `product`."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.trainer.block_loader import BlockLoader
from concord.hw.trainer.block_product import LATENCY, BlockProduct
from concord.hw.trainer.drain import Drain
from concord.hw.trainer.row_adds import RowAdds
from concord.hw.trainer.vector_reader import VectorReader
from concord.hw.trainer.wires import ChipAnswer, ChipRead, ProductJob, chip_writer, engine, row_adder, row_reader

MULTIPLIERS = 144  #: Multipliers of 18 x 18 bits; an ECP5-85F has 156, of which other units take 10.
AHEAD = 32  #: Vectors that are read and whose sums are not yet added: at least the cycles from one to the other.


class TensorEngine(wiring.Component):
    """Execute products: blocks are loaded, vectors are multiplied by them, and sums are drained, beside each other.

    Blocks and vectors of the next product follow those of this one while its sums are drained; `ended` tells their ends
    in order. What an instruction does is in docs/trainer.md.

    Args:
        multipliers: Most multipliers of 18 x 18 bits.

    Members:
        job, ended: as `wires.engine`; ProductJob.
        block_read, block_answer, vector_read, ..., drain_read, ...: three readers of the chip. `drain` should come
            first, and `vector` last.
        write: A writer of the chip.
        row_add: An adder of the accumulators.
        row, sums: A reader of the accumulators.

    Timing:
        A block takes max(16, vectors times planes(a)) cycles. A drained row takes a cycle of the accumulators.
    """

    def __init__(self, multipliers: int = MULTIPLIERS):
        self.multipliers = multipliers
        reads = {f"{name}_read": Out(stream.Signature(ChipRead)) for name in ("block", "vector", "drain")}
        answers = {f"{name}_answer": In(ChipAnswer) for name in ("block", "vector", "drain")}
        super().__init__({**engine(ProductJob), **reads, **answers, **chip_writer(), **row_adder(), **row_reader()})

    def elaborate(self, platform):
        m = Module()
        m.submodules.loader = loader = BlockLoader()
        m.submodules.vectors = vectors = VectorReader(AHEAD)
        m.submodules.product = product = BlockProduct(self.multipliers)
        m.submodules.adds = adds = RowAdds(AHEAD)
        m.submodules.drain = drain = Drain()
        self._share(m, (loader, vectors, drain))
        for inner, outer in ((loader.read, self.block_read), (vectors.read, self.vector_read),
                             (drain.read, self.drain_read), (drain.write, self.write), (drain.row, self.row),
                             (adds.row_add, self.row_add)):
            wiring.connect(m, inner, wiring.flipped(outer))
        purpose, answer = vectors.o.purpose, self.vector_answer
        m.d.comb += [
            loader.answer.eq(self.block_answer), drain.answer.eq(self.drain_answer), drain.sums.eq(self.sums),
            vectors.waiting.eq(loader.waiting), loader.release.eq(vectors.release), vectors.taken.eq(adds.taken),
            product.vector.eq(answer.bytes), product.low.eq(purpose.low), product.block.eq(loader.block),
            product.begins.eq(vectors.o.begins & answer.valid), adds.i.p.sums.eq(product.o),
            adds.i.p.purpose.eq(delay(m, purpose, LATENCY)), adds.i.valid.eq(delay_control(m, answer.valid, LATENCY)),
            drain.landed.eq(adds.landed), self.ended.eq(drain.ended)]
        return m

    def _share(self, m, parts):
        """Each part takes a job when it has ended the one before; the job leaves when all parts have it."""
        given = Signal(len(parts))
        m.d.comb += self.job.ready.eq(given.all())
        m.d.sync += given.eq(Mux(self.job.ready, 0, given | Cat(part.job.valid & part.job.ready for part in parts)))
        for k, part in enumerate(parts):
            m.d.comb += [part.job.valid.eq(self.job.valid & ~given[k]), part.job.p.eq(self.job.p)]
