"""Brings the vectors of products from the chip, each with what becomes of its sums."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.pipeline import delay
from concord.hw.trainer.block_loader import Waiting
from concord.hw.trainer.row_walker import RowWalker
from concord.hw.trainer.tap_walker import TapWalker
from concord.hw.trainer.wires import CHIP_ADDRESS, CHIP_LATENCY, COUNT, ROW, ROW_ADDS, ChipRead, ProductJob
from concord.spec.trainer.config import LANES

#: What becomes of the sums of a vector: the row to which they are added or, with `fresh`, written, with the plain sum
#: or without. `low` and `high`: they are those of the low plane of two, which go with the next ones, or of the high
#: one. `apart`: rows of the vectors before come again. `lands`: the drain counts them.
Purpose = data.StructLayout({"row": ROW, "fresh": 1, "plain": 1, "low": 1, "high": 1, "apart": 1, "lands": 1})
#: A vector beside the answer of the chip; with `begins` it meets the next block.
Vector = data.StructLayout({"begins": 1, "purpose": Purpose})


class State(enum.Enum):
    """What becomes of the present product."""

    FREE = 0  #: There is none.
    START = 1  #: The walkers are brought to its first vector.
    READ = 2  #: Vectors are asked for.


class VectorReader(wiring.Component):
    """Read all vectors that meet a block, one block after the other.

    Mode rows: rows of a's view at the taps of the block, zeros outside its limits. Mode columns: columns of 16 rows of
    a, those which the block has of b. Of two planes, the low one comes first.

    Args:
        room: Number of sums that may be on their way from here.

    Members:
        job: In(stream of ProductJob).
        read: Out(stream of ChipRead). The chip.
        waiting: In(Waiting). The block.
        release: Out(1). The first read of vectors that meet the block is taken.
        taken: In(1). Sums have left.
        o: Out(Vector). Goes with the answer of the chip.
    """

    def __init__(self, room: int):
        self.room = room
        super().__init__({"job": In(stream.Signature(ProductJob)), "read": Out(stream.Signature(ChipRead)),
                          "waiting": In(Waiting), "release": Out(1), "taken": In(1), "o": Out(Vector)})

    def elaborate(self, platform):
        m = Module()
        self.state, self.present = Signal(State), Signal(ProductJob)
        m.submodules.rows = self.rows = RowWalker()
        m.submodules.taps = self.taps = TapWalker()
        m.d.comb += self.job.ready.eq(self.state == State.FREE)
        with m.If(self.job.valid & self.job.ready):
            m.d.sync += [self.present.eq(self.job.p), self.state.eq(State.START)]
        asked, vector = Signal(ChipRead), Signal(Vector)
        # A pass is all vectors of a block. `ends` and `last` are those of its block.
        self.begins, self.second, self.waits = Signal(), Signal(), Signal(Waiting)
        self.moves, self.whole, self.passed = Signal(), Signal(), Signal()
        block = Mux(self.begins, self.waiting, self.waits)
        self.block = data.View(Waiting, block)
        asks = ~self.begins | (self.waiting.loaded & ~(self.read.valid & vector.begins))
        m.d.comb += [
            self.moves.eq((self.state == State.READ) & asks & self._has_room(m) & (~self.read.valid | self.read.ready)),
            self.whole.eq(self.second | ~self.present.a.planes[1]), self.read.p.eq(asked),
            self.release.eq(self.read.valid & self.read.ready & vector.begins),
            self.o.eq(delay(m, vector, CHIP_LATENCY))]
        with m.If(self.state == State.START):
            m.d.sync += [self.state.eq(State.READ), self.begins.eq(1), self.second.eq(0)]
        with m.If(self.read.ready):
            m.d.sync += self.read.valid.eq(0)
        with m.If(self.moves):
            m.d.sync += [self.read.valid.eq(1), self.begins.eq(self.passed), self.second.eq(~self.whole),
                         self.waits.eq(block), vector.begins.eq(self.begins)]
            with m.If(self.passed & self.block.last):
                m.d.sync += self.state.eq(State.FREE)
        self._words(m, asked)
        self._purpose(m, vector.purpose)
        return m

    def _has_room(self, m):
        """Whether one more vector may be asked for."""
        count = Signal(range(self.room + 1))
        m.d.sync += count.eq(count + self.moves - self.taken)
        return count != self.room

    def _words(self, m, asked):
        """Walk through a: rows at a tap, or columns of 16 rows from `chunk` on, which lie in the block at `place`."""
        job, rows, taps, a = self.present, self.rows, self.taps, self.present.a
        chunk, place, output, after = Signal(CHIP_ADDRESS), Signal(CHIP_ADDRESS), Signal(COUNT), Signal(CHIP_ADDRESS)
        starts, ends = self.state == State.START, self.moves & self.passed
        m.d.comb += [
            rows.view.eq(a), rows.c1.eq(taps.c1), rows.c2.eq(taps.c2), rows.start.eq(starts | ends),
            rows.step.eq(self.moves & self.whole & ~job.mode), taps.start.eq(starts),
            taps.step.eq(ends & self.block.ends), after.eq(Mux(self.block.ends, 0, chunk + LANES)),
            rows.offset.eq(Mux(job.mode, place, taps.offset) + Mux(self.second, a.plane, 0)),
            self.passed.eq(self.whole & Mux(job.mode, output == job.outputs - 1, rows.last))]
        m.d.comb += [taps.taps[name].eq(job[name]) for name in ("n0", "n1", "n2")]
        m.d.comb += [stride.eq(value) for stride, value in
                     zip(taps.strides, (job.a_s0, a.pitch1, a.pitch2), strict=True)]
        with m.If(starts):
            m.d.sync += [chunk.eq(0), place.eq(0), output.eq(0)]
        with m.Elif(ends):
            m.d.sync += [chunk.eq(after), place.eq(after), output.eq(0)]
        with m.Elif(self.moves & self.whole):
            m.d.sync += output.eq(output + 1)
            with m.If(output[:4].all()):
                m.d.sync += place.eq(place + a.block)
        with m.If(self.moves):
            m.d.sync += [asked.word.eq(rows.word), asked.column.eq(job.mode), asked.lane.eq(output),
                         asked.zeros.eq(~rows.inside)]

    def _purpose(self, m, purpose):
        """Rows of the accumulators: those of a, alike at each tap; or outputs of a tap, alike for each chunk."""
        job = self.present
        row, first, opens, count, short = Signal(ROW), Signal(ROW), Signal(), Signal(range(ROW_ADDS + 1)), Signal()
        ahead = job.mode & self.block.ends  # the pass goes to rows of its own
        with m.If(self.state == State.START):
            m.d.sync += [row.eq(job.acc), first.eq(job.acc), opens.eq(1), count.eq(0)]
        with m.If(self.moves & self.whole):
            m.d.sync += row.eq(Mux(self.passed & ~ahead, first, row + 1))
            with m.If(self.passed):
                m.d.sync += opens.eq(self.block.ends)
                with m.If(ahead):
                    m.d.sync += first.eq(row + 1)
        with m.If(self.moves):
            m.d.sync += [
                count.eq(Mux(self.passed, 0, count + (count != ROW_ADDS))), purpose.row.eq(row),
                purpose.fresh.eq(~job.keep & opens & (job.mode | self.taps.first)),
                purpose.plain.eq(job.sum & self.taps.first), purpose.low.eq(~self.whole), purpose.high.eq(self.second),
                purpose.apart.eq(self.begins & short),
                purpose.lands.eq(self.whole & self.block.last & (job.y.there | self.passed))]
            with m.If(self.passed):
                m.d.sync += short.eq(count < ROW_ADDS - 1)
