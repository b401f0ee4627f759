"""Brings the sums of blocks to rows of the accumulators."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import chosen_sum
from concord.hw.lib.pipeline import delay_control
from concord.hw.lib.reserved_queue import ReservedQueue
from concord.hw.trainer.block_product import BlockSums
from concord.hw.trainer.vector_reader import Purpose
from concord.hw.trainer.wires import ROW_ADDS, row_adder

#: Sums of a vector or of one of its planes, and what becomes of them.
Made = data.StructLayout({"sums": BlockSums, "purpose": Purpose})
_BYTE = 8


class RowAdds(wiring.Component):
    """Queue sums, join those of two planes, low + (high << 8), and add them to their rows.

    Args:
        room: Number of sums that the queue holds.

    Members:
        i: In(stream of Made). Always taken; the sender does not send without room.
        taken: Out(1). Sums have left the queue.
        row_add: Out(stream of RowAdd). The accumulators.
        landed: Out(1). A row whose purpose is `lands` has been added, and readers see it.

    Timing:
        A plane every cycle. Where passes are short, the first row of a pass waits until the last one of the pass before
        is in the accumulators.
    """

    def __init__(self, room: int):
        self.room = room
        super().__init__({"i": In(stream.Signature(Made, always_ready=True)), "taken": Out(1), **row_adder(),
                          "landed": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = ReservedQueue(Made, self.room, deep=True)
        wiring.connect(m, wiring.flipped(self.i), queue.i)
        sums, purpose = queue.o.p.sums, queue.o.p.purpose
        low, lands, since, add = Signal(BlockSums), Signal(), Signal(range(ROW_ADDS)), self.row_add
        free = ~add.valid | add.ready
        # The drain reads a row two cycles after it has landed. That is an odd number behind the add, so that its reads
        # take the cycles between sums of two planes, which are added every other cycle.
        landed = delay_control(m, add.valid & add.ready & lands, ROW_ADDS + 1)
        m.d.comb += [queue.o.ready.eq(Mux(purpose.apart, (since == ROW_ADDS - 1) & ~add.valid, free)),
                     self.taken.eq(queue.o.valid & queue.o.ready),
                     self.landed.eq(landed)]
        m.d.sync += since.eq(Mux(add.valid, 0, since + (since != ROW_ADDS - 1)))
        with m.If(free):
            m.d.sync += add.valid.eq(0)
        with m.If(self.taken):
            m.d.sync += [
                add.valid.eq(~purpose.low), low.eq(Mux(purpose.low, sums, 0)), lands.eq(purpose.lands),
                add.p.row.eq(purpose.row), add.p.fresh.eq(purpose.fresh), add.p.lanes.eq(1),
                add.p.plain.eq(purpose.plain)]
            m.d.sync += [made.eq(self._joined(m, platform, part, before, purpose.high)) for made, part, before in zip(
                add.p.sums, [*sums.sums, sums.plain], [*low.sums, low.plain], strict=True)]
        return m

    def _joined(self, m, platform, part, before, high):
        """Sums of the high plane with those of the low plane, or sums of the only plane with zeros."""
        bits = len(part) + _BYTE + 1
        one, low, above = (Cat(value, value[-1].replicate(bits - len(value)))
                           for value in (before, part, part.shift_left(_BYTE)))
        return chosen_sum(m, platform, one, high, low, above).as_signed()
