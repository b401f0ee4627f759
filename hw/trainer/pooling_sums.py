"""Rows of a pooling engine as exact sums, four lanes a cycle."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import add_carry, digits, shift_digit
from concord.hw.lib.pipeline import Registered, delay, delay_control, follow
from concord.hw.trainer.pooling_lanes import OTHER, TOTAL, PoolingRow
from concord.hw.trainer.pooling_reads import GROUP, GROUPS, in_parts
from concord.hw.trainer.wires import ADD, PoolingJob
from concord.spec.numbers.lazy import ACCUMULATOR_BITS
from concord.spec.trainer.config import LANES

_FACTOR = 16  #: Bits of a factor; where totals are multiplied in parts, also those of the low part.
_NUMBER = signed(_FACTOR + 2)  #: What is multiplied: a total of four gradients fits.
_SUM = signed(TOTAL + _FACTOR + 2)
_RIGHT = 5  #: Bits of a shift to the right.

#: Sums of one group of a row, which may be the last one. `live` has the mask of their lanes.
GroupSums = data.StructLayout({
    "valid": 1, "sums": data.ArrayLayout(signed(ACCUMULATOR_BITS), GROUP), "live": GROUP, "last": 1})


class PoolingSums(wiring.Component):
    """Multiply totals by the reciprocal or by 1; or shift two numbers to the unit of their sum, and add them.

    One multiplier of 18 times 17 bits in each lane does both. Totals of up to four windows fit it, and larger ones are
    multiplied in two parts. One of two numbers at most is shifted to the left: it is multiplied by a power of two.

    Members:
        job: In(PoolingJob). Held from some cycles before its first row on.
        i: In({valid, row}). Rows, one in GROUPS cycles at most; in twice as many where totals are multiplied in parts.
        o: Out(GroupSums). The groups of a row, the low lanes first.

    Timing:
        The first group comes `latency` cycles later; in parts, one cycle later than that.
    """

    latency = 6

    def __init__(self):
        super().__init__({"job": In(PoolingJob), "i": In(data.StructLayout({"valid": 1, "row": PoolingRow})),
                          "o": Out(GroupSums)})

    def elaborate(self, platform):
        m = Module()
        parts, row, turn, active = in_parts(self.job), Signal(PoolingRow), Signal(range(2 * GROUPS)), Signal()
        group, second = Mux(parts, turn >> 1, turn)[:2], parts & turn[0]  # `second`: of two parts
        ends = turn == Mux(parts, 2 * GROUPS - 1, GROUPS - 1)
        with m.If(self.i.valid):
            m.d.sync += [row.eq(self.i.row), turn.eq(0), active.eq(1)]
        with m.Elif(active):
            m.d.sync += [turn.eq(turn + 1), active.eq(~ends)]
        self._shifts(m)
        of_group = {name: Value.cast(row[name]).word_select(group, GROUP * (len(Value.cast(row[name])) // LANES))
                    for name in ("totals", "counts", "others", "mask")}
        parts_of = [[of_group[name].word_select(k, len(of_group[name]) // GROUP) for k in range(GROUP)]
                    for name in ("totals", "counts", "others")]
        lanes = [Registered(m, self._numbers(*lane, second)) for lane in zip(*parts_of, strict=True)]
        stages = [lambda lane, low=low: self._shift(lane, low) for low in digits(_RIGHT)]
        lanes = [Registered(m, follow(lane, {"product": lane["number"] * self.factor} | stages[0](lane)))
                 for lane in lanes]
        for stage in stages[1:]:
            lanes = [Registered(m, follow(lane, stage(lane))) for lane in lanes]
        second = delay(m, second, self.latency - 2)
        for lane, total in zip(lanes, self.o.sums, strict=True):
            m.d.comb += total.eq(self._sum(m, lane, second))
        m.d.comb += [
            self.o.valid.eq(delay_control(m, active & (turn[0] | ~parts), self.latency - 1)),
            self.o.last.eq(delay(m, ends, self.latency - 1)),
            self.o.live.eq(delay(m, of_group["mask"], self.latency - 1))]
        return m

    def _shifts(self, m):
        """What the numbers of a job are multiplied by, and shifted to the right."""
        job = self.job
        self.adds, self.turned = Signal(), Signal()  # `turned`: the other number is shifted to the left
        self.factor, self.far, self.right = Signal(_FACTOR), Signal(), Signal(_RIGHT)  # `far`: 2**16 times as much
        m.d.sync += [self.adds.eq(job.kind == ADD), self.turned.eq((job.kind == ADD) & (job.other_right < 0))]
        left = Mux(self.turned, -job.other_right, -job.x_right)[:5]
        m.d.sync += [
            self.factor.eq(Mux(self.adds, 1 << left[:4], Mux(job.mean, job.reciprocal, 1))),
            self.far.eq(self.adds & left[4]), self.right.eq(Mux(self.turned, job.x_right, job.other_right))]

    def _numbers(self, total, counts, other, second):
        """What is multiplied, and what is added to the product, with one bit of fraction."""
        first, high = total[:OTHER], total[_FACTOR:].as_signed()
        low = Mux(self.turned, other, Mux(second, high, first))[:_FACTOR]
        sign = Mux(in_parts(self.job), second & high[-1], low[-1]).replicate(2)
        number = Cat(low, Mux(self.adds | in_parts(self.job), sign, total[_FACTOR:_NUMBER.width]))
        rest = Mux(self.turned, first, other) & self.adds.replicate(OTHER)
        return {"number": Mux(counts, number, 0).as_signed(), "rest": Cat(0, rest).as_signed(), "lost": Const(0)}

    def _shift(self, lane, low: int):
        rest, lost = shift_digit(lane["rest"], self.right, low)
        return {"rest": rest, "lost": lane["lost"] | lost}

    def _sum(self, m, lane, second):
        """The product, and beside it the shifted number or the product of the first part."""
        made, rest = Signal(_SUM), lane["rest"]
        up = rest[0] & (~rest[-1] | lane["lost"])  # half away from zero
        product = Mux(second | self.far, Cat(Const(0, _FACTOR), lane["product"]).as_signed(), lane["product"])
        m.d.sync += made.eq(add_carry(Mux(second, made, rest[1:].as_signed()), product, up))
        return made
