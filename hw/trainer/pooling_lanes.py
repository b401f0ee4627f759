"""Words of a pooling engine, added up or compared in sixteen lanes."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import gated_sum
from concord.hw.lib.pipeline import delay_control
from concord.hw.trainer.pooling_reads import PoolingTag, Use
from concord.hw.trainer.wires import POOL_BACK, ChipAnswer, PoolingJob
from concord.spec.trainer.config import LANES

TOTAL = 24  #: Bits of a total: up to 225 gradients of 16 bits, sign included.
OTHER = 16  #: Bits of the number beside it.

#: What the words of a row have become: totals; which of them count; numbers of b, or pixels that windows have chosen;
#: lanes of the mask.
PoolingRow = data.StructLayout({
    "totals": data.ArrayLayout(signed(TOTAL), LANES), "counts": LANES,
    "others": data.ArrayLayout(OTHER, LANES), "mask": LANES})


class PoolingLanes(wiring.Component):
    """Make rows of the words of a job: sums, sums of what windows have chosen, the largest bytes, or two numbers.

    Members:
        job: In(PoolingJob). Held while its words come.
        i: In(ChipAnswer). Words.
        tag: In(PoolingTag). What becomes of the word.
        o: Out({valid, row}). A row, in the cycle behind that of its last word; it holds until further words change it.
    """

    def __init__(self):
        super().__init__({"job": In(PoolingJob), "i": In(ChipAnswer), "tag": In(PoolingTag),
                          "o": Out(data.StructLayout({"valid": 1, "row": PoolingRow}))})

    def elaborate(self, platform):
        m = Module()
        tag, row = self.tag, self.o.row
        self.uses = {use: self.i.valid & (tag.use == use) for use in Use}
        chooses = (self.job.kind == POOL_BACK) & self.job.chosen.there
        # The total may be that of the only window: the next pixel may choose in it, too, so that it is kept whole.
        apart = self.job.stride >= self.job.size
        for k, (byte, total, other) in enumerate(zip(self.i.bytes, row.totals, row.others, strict=True)):
            is_chosen = other[:len(tag.index)] == tag.index
            larger = self.uses[Use.LARGEST] & (tag.first | (byte.as_signed() > total[:8].as_signed()))
            self._total(m, platform, byte, total, larger, ~chooses | apart | is_chosen)
            self._other(m, byte, other, larger)
            m.d.sync += row.counts[k].eq(~(chooses & apart) | is_chosen)
            with m.If(self.uses[Use.MASK]):
                m.d.sync += row.mask[k].eq(~byte[-1] & byte.any())
        m.d.comb += self.o.valid.eq(delay_control(m, self.i.valid & tag.last, 1))
        return m

    def _total(self, m, platform, byte, total, larger, counts):
        """Add a byte, or replace the total by it."""
        use, number = self.tag.use, byte.as_signed()
        term = Mux(use == Use.LOW, byte, Mux(use == Use.HIGH, Cat(Const(0, 8), byte).as_signed(), number))
        with m.If(larger | self.uses[Use.SUM] | self.uses[Use.LOW] | self.uses[Use.HIGH]):
            adds = ~(self.tag.first | (use == Use.LARGEST))
            m.d.sync += total.eq(gated_sum(m, platform, adds, total, counts, term))

    def _other(self, m, byte, other, larger):
        """Take a byte, or the index in the window, as the number beside the total."""
        uses = self.uses
        with m.If(larger | uses[Use.OTHER] | uses[Use.OTHER_LOW]):
            m.d.sync += other[:8].eq(Mux(self.tag.use == Use.LARGEST, self.tag.index, byte))
        with m.If(uses[Use.OTHER] | uses[Use.OTHER_LOW] | uses[Use.OTHER_HIGH]):
            m.d.sync += other[8:].eq(Mux(self.tag.use == Use.OTHER_HIGH, byte,
                                         (byte[-1] & (self.tag.use == Use.OTHER)).replicate(8)))
