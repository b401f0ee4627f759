"""Brings the blocks of products from the chip, one while the block before is multiplied."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.pipeline import delay
from concord.hw.trainer.row_walker import RowWalker
from concord.hw.trainer.tap_walker import TapWalker
from concord.hw.trainer.wires import CHIP_LATENCY, ChipRead, ProductJob, Word, chip_reader
from concord.spec.trainer.config import LANES

#: One row of a block; `there` says that it is not behind the last row of b.
BlockRow = data.StructLayout({"bytes": Word, "there": 1})
Block = data.ArrayLayout(BlockRow, LANES)
#: Whether a block waits, and whether it is the last one of its taps, and of its product.
Waiting = data.StructLayout({"loaded": 1, "ends": 1, "last": 1})


class State(enum.Enum):
    """What becomes of the present product."""

    FREE = 0  #: There is none.
    START = 1  #: The walkers are brought to its first block.
    LOAD = 2  #: Rows are asked for.


class BlockLoader(wiring.Component):
    """Load 16 rows of b for each block of a product, in either of its modes.

    Mode rows: a block for each tap; its row k is word k behind b's word of the tap, or byte k of 16 words with
    `turned`. Mode columns: blocks are 16 rows of b's view for each tap, zeros outside its limits and behind its end.

    Members:
        job: In(stream of ProductJob).
        read, answer: The chip.
        block: Out(Block). The block that waits: complete from two cycles after the answer to its last read on, until
            one cycle after the answer to the read that `release` is told of.
        waiting: Out(Waiting). `loaded` in the cycle in which the last read of a block is taken, and from then on.
        release: In(1). The first read of the vectors that meet the block which is `loaded` is taken.

    Timing:
        16 cycles a block. The first row of the next block may come ahead of `release`, as it waits in a register of its
        own, and all others behind it.
    """

    def __init__(self):
        super().__init__({"job": In(stream.Signature(ProductJob)), **chip_reader(), "block": Out(Block),
                          "waiting": Out(Waiting), "release": In(1)})

    def elaborate(self, platform):
        m = Module()
        job, state = Signal(ProductJob), Signal(State)
        m.submodules.rows = rows = RowWalker()
        m.submodules.taps = taps = TapWalker()
        m.d.comb += self.job.ready.eq(state == State.FREE)
        with m.If(self.job.valid & self.job.ready):
            m.d.sync += [job.eq(self.job.p), state.eq(State.START)]
        k, behind, empty = Signal(range(LANES)), Signal(), Signal(init=1)  # `empty`: no block waits
        asked, there, final = Signal(ChipRead), Signal(), Signal()
        taken, asks, moves, ends = (Signal(name=name) for name in ("taken", "asks", "moves", "ends"))
        m.d.comb += [
            taken.eq(self.read.valid & self.read.ready), self.read.p.eq(asked),
            asks.eq((state == State.LOAD) & ((k != 1) | empty | self.release)),
            moves.eq(asks & (~self.read.valid | self.read.ready)),
            ends.eq((k == LANES - 1) & (~job.mode | rows.last | behind))]
        self._walk(m, job, rows, taps, k)
        m.d.comb += [rows.start.eq((state == State.START) | (moves & ends)), taps.start.eq(state == State.START),
                     rows.step.eq(moves & job.mode & ~behind), taps.step.eq(moves & ends)]
        with m.If(state == State.START):
            m.d.sync += [state.eq(State.LOAD), behind.eq(0)]
        with m.If(taken):
            m.d.sync += self.read.valid.eq(0)
        with m.If(moves):
            m.d.sync += [
                k.eq(k + 1), behind.eq(~ends & (behind | (rows.last & job.mode))), self.read.valid.eq(1),
                asked.word.eq(rows.word), asked.column.eq(job.turned), asked.lane.eq(k),
                asked.zeros.eq(behind | ~rows.inside), there.eq(~behind), final.eq(k == LANES - 1)]
            with m.If(k == LANES - 1):
                m.d.sync += [self.waiting.ends.eq(ends), self.waiting.last.eq(ends & taps.last)]
                with m.If(ends & taps.last):
                    m.d.sync += state.eq(State.FREE)
        self._wait(m, moves & (k == 1), taken & final, empty)
        self._gather(m, there)
        return m

    def _walk(self, m, job, rows, taps, k):
        """What walkers walk through: taps of b in mode rows, rows of b at the position of a tap in mode columns."""
        b = job.b
        strides = ((b.s0, job.a_s0), (b.jump1, b.pitch1), (b.jump2, b.pitch2))
        m.d.comb += [rows.view.eq(b), rows.c1.eq(taps.c1), rows.c2.eq(taps.c2),
                     rows.offset.eq(taps.offset + Mux(job.mode | job.turned, 0, k))]
        m.d.comb += [taps.taps[name].eq(job[name]) for name in ("n0", "n1", "n2")]
        m.d.comb += [stride.eq(Mux(job.mode, columns, own)) for stride, (own, columns) in
                     zip(taps.strides, strides, strict=True)]

    def _wait(self, m, opens, complete, empty):
        """Whether a block waits: from its last read to its release; the next one opens with its second read."""
        loaded = Signal()
        m.d.comb += self.waiting.loaded.eq(loaded | complete)
        m.d.sync += [loaded.eq(self.waiting.loaded & ~self.release), empty.eq((empty | self.release) & ~opens)]

    def _gather(self, m, there):
        """Shift rows into the block; the newest one waits beside it, the last one of a block for one cycle."""
        newest, full, count = Signal(BlockRow), Signal(), Signal(range(LANES))
        last, there = full & (count == 0), delay(m, there, CHIP_LATENCY)
        with m.If(full & (self.answer.valid | last)):
            m.d.sync += [row.eq(after) for row, after in zip(self.block, [*list(self.block)[1:], newest], strict=True)]
        m.d.sync += full.eq(self.answer.valid | (full & ~last))
        with m.If(self.answer.valid):
            m.d.sync += [newest.bytes.eq(self.answer.bytes), newest.there.eq(there), count.eq(count + 1)]
