"""The rows of a view, one a cycle: the word of each, and whether it is inside the limits."""

from functools import partial

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import loaded_sum
from concord.hw.trainer.wires import ADDRESS, COUNT, View

TAP = 6  #: Bits of a tap.
_U = 16  #: Bits of origin + step * (count - 1) + tap, -128..61600: negative ones are above all limits.


class RowWalker(wiring.Component):
    """Walk through the rows (t0, t1, t2) of a view, t2 fastest.

    word = first + s0 * t0 + jump1 * t1 + jump2 * t2 + offset, modulo 2**ADDRESS

    Members:
        view: In(View). Held from `start` to the last row.
        start: In(1). The next cycle stands on the first row, whatever `step` says.
        step: In(1). The next cycle stands on the row behind this one; behind the last row there is none.
        c1, c2: In(6). Taps, which decide what is inside and do not move the word.
        offset: In(signed). Words that are added, of planes, blocks and taps.
        word: Out(28). The word of this row.
        inside: Out(1). Whether origin + step * t + c is in 0..limit - 1 on both axes; an axis of limit 0 has no bounds.
        last: Out(1). Whether this row is the last one.

    Timing:
        `word` and `inside` follow taps and offset within the cycle.
    """

    def __init__(self):
        super().__init__({
            "view": In(View), "start": In(1), "step": In(1), "c1": In(TAP), "c2": In(TAP),
            "offset": In(signed(ADDRESS)), "word": Out(ADDRESS), "inside": Out(1), "last": Out(1)})

    def elaborate(self, platform):
        m = Module()
        self.loaded = partial(loaded_sum, m, platform)
        view = self.view
        end2, inside2 = self._axis(m, view.n2, view.origin2, view.step2, view.limit2, self.c2, self.step)
        end1, inside1 = self._axis(m, view.n1, view.origin1, view.step1, view.limit1, self.c1, self.step & end2)
        end0 = self._count(m, view.n0, self.step & end2 & end1)
        m.d.comb += [self.last.eq(end0 & end1 & end2), self.inside.eq(inside1 & inside2),
                     self.word.eq(self._words(m, end1, end2) + self.offset)]
        return m

    def _words(self, m, end1, end2):
        """The word of this row, without the offset.

        Each axis keeps the word at which it stands while faster ones stand on 0. The slowest axis that moves takes its
        stride from there, in the one adder that they share, and all faster ones begin there.
        """
        view = self.view
        offsets = slow, middle, fast = [Signal(ADDRESS) for _ in range(3)]
        after = self.loaded(self.start, view.first, Mux(~end2, fast, Mux(~end1, middle, slow)),
                            Mux(~end2, view.jump2, Mux(~end1, view.jump1, view.s0)))
        for offset, moves in zip(offsets, (end1 & end2, end2, 1), strict=True):
            with m.If(self.start | (self.step & moves)):
                m.d.sync += offset.eq(after)
        return fast

    def _count(self, m, count, moves):
        """Whether an axis stands on its last row; behind that it begins anew."""
        left = Signal(COUNT)
        ends = left == 1
        with m.If(self.start | moves):
            m.d.sync += left.eq(self.loaded(self.start | ends, count, left, Const(-1)))
        return ends

    def _axis(self, m, count, origin, step, limit, tap, moves):
        """Whether an axis stands on its last row, and whether its u with this tap is inside."""
        ends, u = self._count(m, count, moves), Signal(_U)
        with m.If(self.start | moves):
            m.d.sync += u.eq(self.loaded(self.start | ends, origin, u, step))
        seen = Signal(_U)
        m.d.comb += seen.eq(u + tap)
        return ends, ~limit.any() | (~seen[COUNT:].any() & (seen[:COUNT] < limit))
