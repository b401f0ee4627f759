"""Rows of a pooling engine as exact sums, eight lanes a cycle."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import add_carry, digits, shift_digit
from concord.hw.lib.pipeline import Registered, delay, delay_control, follow
from concord.hw.trainer.pooling_lanes import OTHER, TOTAL, PoolingRow
from concord.hw.trainer.pooling_reads import in_parts
from concord.hw.trainer.wires import ADD, PoolingJob
from concord.spec.numbers.lazy import ACCUMULATOR_BITS
from concord.spec.trainer.config import LANES

HALF = LANES // 2  #: Lanes that are converted in a cycle.
_FACTOR = 16  #: Bits of a factor; where totals are multiplied in parts, also those of the low part.
_NUMBER = signed(_FACTOR + 2)  #: What is multiplied: a total of four gradients fits.
_SUM = signed(TOTAL + _FACTOR + 2)
_RIGHT = 5  #: Bits of a shift to the right.

#: Sums of one half of a row: `upper` is that of lanes 8 to 15. `live` has the mask of their lanes.
HalfRow = data.StructLayout({
    "valid": 1, "sums": data.ArrayLayout(signed(ACCUMULATOR_BITS), HALF), "live": HALF, "upper": 1})


class PoolingSums(wiring.Component):
    """Multiply totals by the reciprocal or by 1; or shift two numbers to the unit of their sum, and add them.

    One multiplier of 18 times 17 bits in each lane does both. Totals of up to four windows fit it, and larger ones are
    multiplied in two parts. One of two numbers at most is shifted to the left: it is multiplied by a power of two.

    Members:
        job: In(PoolingJob). Held from some cycles before its first row on.
        i: In({valid, row}). Rows, one in two cycles on average; one may come a cycle early, and its totals then stay a
            cycle longer. Where totals are multiplied in parts, it is one in four, and all of it stays.
        o: Out(HalfRow). The lower half of a row, then the upper one.

    Timing:
        A half comes `latency` cycles later; in parts, its second part does.
    """

    latency = 5

    def __init__(self):
        super().__init__({"job": In(PoolingJob), "i": In(data.StructLayout({"valid": 1, "row": PoolingRow})),
                          "o": Out(HalfRow)})

    def elaborate(self, platform):
        m = Module()
        parts, row, turn, waiting = in_parts(self.job), Signal(PoolingRow), Signal(2), Signal(PoolingRow)
        late, counts = Signal(), Signal(LANES)  # a row that came early waits, and its totals stay
        begins = (self.i.valid | late) & (turn == 0)
        active, upper = begins | turn.any(), Mux(parts, turn[1], turn[0])
        second = parts & turn[0]  # of two parts
        m.d.comb += row.eq(self.i.row)
        m.d.sync += late.eq(self.i.valid & turn.any())
        with m.If(late):
            m.d.comb += row.counts.eq(counts)
        with m.If(self.i.valid):
            m.d.sync += counts.eq(row.counts)
        with m.If(begins):
            m.d.sync += waiting.eq(row)
        with m.If(active):
            m.d.sync += turn.eq(Mux(turn == Mux(parts, 3, 1), 0, turn + 1))
        self._shifts(m)
        lanes = [Registered(m, self._numbers(*(Mux(upper, waiting[name][k + HALF], row[name][k])
                                               for name in ("totals", "counts", "others")), second))
                 for k in range(HALF)]
        stages = [lambda lane, low=low: self._shift(lane, low) for low in digits(_RIGHT)]
        lanes = [Registered(m, follow(lane, {"product": lane["number"] * self.factor} | stages[0](lane)))
                 for lane in lanes]
        for stage in stages[1:]:
            lanes = [Registered(m, follow(lane, stage(lane))) for lane in lanes]
        second = delay(m, second, self.latency - 1)
        for lane, total in zip(lanes, self.o.sums, strict=True):
            m.d.comb += total.eq(self._sum(m, lane, second))
        m.d.comb += [
            self.o.valid.eq(delay_control(m, active & (turn[0] | ~parts), self.latency)),
            self.o.upper.eq(delay(m, upper, self.latency)),
            self.o.live.eq(delay(m, Mux(upper, waiting.mask[HALF:], row.mask[:HALF]), self.latency))]
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
