"""The words of a view of any memory, in an order in which both sides of a copy walk."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.trainer.row_walker import RowWalker
from concord.hw.trainer.wires import ADDRESS, COUNT, View
from concord.spec.trainer.instructions import Space

#: Words of a view: `count` of them from `word` on, which belong to `plane` and to block 0 or to another one. `inside`:
#: they are no zeros. `first` and `final`: the first and the last word of a row; `last`: the last step of the view.
Step = data.StructLayout({
    "word": ADDRESS, "count": COUNT, "inside": 1, "plane": 3, "block": 1, "first": 1, "final": 1, "last": 1})


class WordWalker(wiring.Component):
    """Walk through the words of a view: blocks, planes, and rows in each; or rows, and blocks and planes in each.

    Args:
        runs: Where blocks come first, and rows along axis 2 follow each other without limits, they are one step.

    Members:
        view: In(View). Held from `start` to the last step. In the accumulators, plane and block do not move the word.
        by_rows: In(1). Held as the view. Rows come first.
        start: In(1). The next cycle offers the first step. It comes when there are no steps.
        o: Out(stream of Step). Steps, which follow from registers by one adder.
    """

    def __init__(self, runs: bool = False):
        self.runs = runs
        super().__init__({
            "view": In(View), "by_rows": In(1), "start": In(1), "o": Out(stream.Signature(Step))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = RowWalker()
        o, on, moved, turns = self.o, Signal(), Signal(), Signal()  # `turns`: the offset changes
        m.d.comb += [moved.eq(o.valid & o.ready), turns.eq(moved & (self.by_rows | rows.last))]
        self._offsets(m, rows, turns)
        m.d.comb += [
            rows.view.eq(self.view), rows.start.eq(self.start | (turns & ~self.by_rows)),
            rows.step.eq(moved & (~self.by_rows | o.p.final)),
            o.valid.eq(on), o.p.word.eq(rows.word), o.p.count.eq(1), o.p.inside.eq(rows.inside),
            o.p.last.eq(rows.last & o.p.final)]
        with m.If(self.start):
            m.d.sync += on.eq(1)
        with m.Elif(moved & o.p.last):
            m.d.sync += on.eq(0)
        view = self.view
        if self.runs:
            with m.If(~self.by_rows & (view.jump2 == 1) & ~view.limit2.any()):
                m.d.comb += [rows.view.n2.eq(1), o.p.count.eq(view.n2)]
        return m

    def _offsets(self, m, rows, turns):
        """Walk through blocks and planes: their number, and their words."""
        view, p = self.view, self.o.p
        left, whole, place = Signal(COUNT), Signal(signed(ADDRESS)), Signal(signed(ADDRESS))  # `whole`: of plane 0
        after, on_chip, ends = Signal(signed(ADDRESS)), Signal(), Signal()
        m.d.comb += [
            ends.eq(p.plane == (view.planes - 1)[:3]), on_chip.eq(view.space != Space.ACCUMULATORS.value),
            p.final.eq(ends & (left == 1)), p.first.eq(~p.plane.any() & ~p.block), rows.offset.eq(place),
            after.eq(Mux(ends, whole, place) + Mux(on_chip, Mux(ends, view.block, view.plane), 0))]
        plane, block = Signal(3), Signal()
        m.d.comb += [p.plane.eq(plane), p.block.eq(block)]
        with m.If(self.start | (turns & p.final)):
            m.d.sync += [plane.eq(0), block.eq(0), left.eq(view.blocks), whole.eq(0), place.eq(0)]
        with m.Elif(turns):
            m.d.sync += [plane.eq(Mux(ends, 0, plane + 1)), place.eq(after)]
            with m.If(ends):
                m.d.sync += [block.eq(1), left.eq(left - 1), whole.eq(after)]


def held(m: Module, jobs, ends) -> tuple:
    """Take a job from a stream where none is held, and hold it until `ends`.

    Returns: the job, and a pulse in the first cycle in which it is held.
    """
    job, there, start = Signal(jobs.p.shape(), name="job"), Signal(name="there"), Signal(name="start")
    m.d.comb += jobs.ready.eq(~there)
    m.d.sync += start.eq(jobs.valid & jobs.ready)
    with m.If(jobs.valid & jobs.ready):
        m.d.sync += [job.eq(jobs.p), there.eq(1)]
    with m.Elif(ends):
        m.d.sync += there.eq(0)
    return job, start
