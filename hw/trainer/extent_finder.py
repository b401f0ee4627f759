"""The closed form of the words that a view may reach, as `spec.trainer.views.TrainerView.extent` has it."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.trainer.bases import BASE
from concord.hw.trainer.wires import COUNT, JUMP, STRIDE

OFFSET = 28  #: Bits of the offset of a view.
SUM = signed(40)  #: Any sum of the terms of a view.
ROWS = 3 * COUNT  #: Bits of a number of rows.
TAPS = COUNT  #: Bits of a number of taps.
_EXTRA = 17  #: Bits of a number of words behind the last one: as many as no memory on the chip has.
_U = signed(18)


def _axis(number: int) -> dict:
    return {f"n{number}": COUNT, f"pitch{number}": signed(STRIDE), f"step{number}": 4, f"origin{number}": signed(8),
            f"limit{number}": COUNT, f"taps{number}": TAPS}


#: A view as an instruction uses it: its words begin at base + offset; each axis has taps; `further` is the count and
#: `stride` the stride of a term that is the view's blocks or what the instruction has instead of them; `extra` words
#: follow the last one. The product of `count0`, `count1` and `count2` is wanted, too.
Use = data.StructLayout({
    "base": signed(BASE), "offset": OFFSET, "planes": 3, "plane": STRIDE, "n0": COUNT, "s0": signed(STRIDE),
    "further": COUNT, "stride": signed(STRIDE), **_axis(1), **_axis(2), "extra": _EXTRA,
    "count0": COUNT, "count1": COUNT, "count2": COUNT})

#: What is found: the word of plane 0, block 0 and row 0 with taps 0; words from step to step of both axes; the product
#: of the counts; the lowest and the highest word, unless `empty`: all words are outside of the limits. `aligned`: all
#: rows, planes and further parts begin at multiples of 16 words.
Extent = data.StructLayout({
    "first": SUM, "jump1": signed(JUMP), "jump2": signed(JUMP), "rows": ROWS, "low": SUM, "high": SUM,
    "empty": 1, "aligned": 1})


def small_product(a, b):
    """a * b for an unsigned b of few bits, in lookup tables: multipliers are for engines."""
    return sum((Mux(bit, a, 0) << k for k, bit in enumerate(b)), Const(0))


class ExtentFinder(wiring.Component):
    """Finds one extent after the other, with one large multiplier and one small one.

    Members:
        use: In(Use). start: In(1). Taken with `start`; counts are at least 1.
        done: Out(1). Pulse: `extent` is found.
        extent: Out(Extent). Holds until the next start.

    Timing:
        `done` comes 13 cycles after `start`.
    """

    def __init__(self):
        super().__init__({"use": In(Use), "start": In(1), "done": Out(1), "extent": Out(Extent)})

    def elaborate(self, platform):
        m = Module()
        self.held, self.step = Signal(Use), Signal(range(16), init=15)
        self.last = {k: Signal(_U, name=f"last{k}") for k in (1, 2)}  # u of the last step and tap of each axis
        m.d.sync += self.step.eq(Mux(self.start, 0, Mux(self.step == 15, 15, self.step + 1)))
        m.d.comb += self.done.eq(self.step == 12)
        with m.If(self.start):
            m.d.sync += self.held.eq(self.use)
        self._begin(m)
        self._ends(m)
        self._multiply(m)
        self._multiply_steps(m)
        held, found = self.held, self.extent
        strides = ((held.n0, held.s0), (held.n1, found.jump1), (held.n2, found.jump2), (held.planes, held.plane),
                   (held.further, held.stride))
        odd = [(count != 1) & stride[:4].any() for count, stride in strides]
        m.d.sync += found.aligned.eq(~(found.first[:4].any() | Cat(odd).any()))
        return m

    def _begin(self, m):
        """Begin all sums with the first word."""
        found, held, word = self.extent, self.held, Signal(signed(BASE + 2))
        m.d.comb += word.eq(held.base + held.offset)
        with m.If(self.step == 0):
            m.d.sync += [found.first.eq(word), found.low.eq(word), found.high.eq(word + held.extra)]

    def _ends(self, m):
        """The lowest and the highest u of each axis, clipped to the limits."""
        self.ends, outside = {}, []
        for k in (1, 2):
            last, origin, limit = self.last[k], self.held[f"origin{k}"], self.held[f"limit{k}"]
            low, high = Signal(_U, name=f"low{k}"), Signal(_U, name=f"high{k}")
            below, above = limit.any() & origin[-1], limit.any() & (last >= limit)
            m.d.sync += [low.eq(Mux(below, 0, origin)), high.eq(Mux(above, limit - 1, last))]
            outside.append(limit.any() & (last[-1] | (origin >= limit)))
            self.ends[k] = low, high
        m.d.sync += self.extent.empty.eq(outside[0] | outside[1])

    def _multiply(self, m):
        """Products of strides and numbers of steps, and of the counts, one a cycle."""
        held, rows = self.held, self.extent.rows
        low, high, first, counts = (Signal(name=f"to_{name}") for name in ("low", "high", "first", "rows"))
        a, b, product = Signal(signed(2 * COUNT + 1)), Signal(_U), Signal(SUM)
        tags = [low, high, first, counts]
        m.d.sync += [tag.eq(0) for tag in tags]
        m.d.sync += product.eq(a * b)
        later = [Signal(name=f"{tag.name}_later") for tag in tags]
        m.d.sync += [there.eq(tag) for there, tag in zip(later, tags, strict=True)]
        with m.Switch(self.step):
            with m.Case(0):
                m.d.sync += [a.eq(held.count0), b.eq(held.count1), counts.eq(1)]
            for step, count, stride in ((1, held.n0, held.s0), (2, held.further, held.stride)):
                with m.Case(step):
                    m.d.sync += [a.eq(stride), b.eq(count - 1), low.eq(stride[-1]), high.eq(~stride[-1])]
            for k in (1, 2):
                pitch = held[f"pitch{k}"]
                with m.Case(2 + k):
                    m.d.sync += [a.eq(pitch), b.eq(held[f"origin{k}"]), first.eq(1)]
                for step, end, downwards in ((5 + k, 0, pitch[-1]), (7 + k, 1, ~pitch[-1])):
                    with m.Case(step):
                        m.d.sync += [a.eq(pitch), b.eq(self.ends[k][end]), low.eq(~downwards), high.eq(downwards)]
            with m.Case(5):
                m.d.sync += [a.eq(rows), b.eq(held.count2), counts.eq(1)]
        found, (low, high, first, counts) = self.extent, later
        for address, moves in ((found.first, first), (found.low, low), (found.high, high)):
            with m.If(moves):
                m.d.sync += address.eq(address + product)
        with m.If(counts):
            m.d.sync += rows.eq(product)

    def _multiply_steps(self, m):
        """Products with steps of axes and numbers of planes, one a cycle."""
        held, found = self.held, self.extent
        a, b, product = Signal(signed(STRIDE + 1)), Signal(4), Signal(signed(JUMP))
        m.d.sync += product.eq(small_product(a, b))
        with m.Switch(self.step):
            for step, one, other in (
                    (0, held.n1 - 1, held.step1), (1, held.n2 - 1, held.step2), (2, held.pitch1, held.step1),
                    (3, held.pitch2, held.step2), (4, held.plane, held.planes - 1)):
                with m.Case(step):
                    m.d.sync += [a.eq(one), b.eq(other)]
        with m.Switch(self.step):
            for k in (1, 2):
                with m.Case(1 + k):
                    m.d.sync += self.last[k].eq(held[f"origin{k}"] + held[f"taps{k}"] - 1 + product)
                with m.Case(3 + k):
                    m.d.sync += found[f"jump{k}"].eq(product)
            with m.Case(6):  # no other term of the highest word comes in this step
                m.d.sync += found.high.eq(found.high + product)
