"""Walks through the words of Dram that a chain reads or writes, range by range."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.outside import WORDS, Range, Walk
from concord.spec.isa.instructions import REGISTER_BITS

ENOUGH = 7  #: Logarithm of the number of words at which a range is long enough.


class RangeWalker(wiring.Component):
    """Makes ranges of the words of chains; neighbours along x that follow each other make one range.

    Args:
        most: Most words of an iteration where all iterations follow each other, or read the same if `inc` is 0: their
            strides have no effect, and no rows part them. 0 for all others.

    Members:
        i: In(stream Walk). Chains.
        o: Out(stream Range). Their ranges, in order.

    Timing:
        One iteration a cycle; two cycles more for a chain. A range ends with its row of iterations, or at 128 words.
    """

    def __init__(self, most: int = 0):
        self.most = most
        super().__init__({"i": In(stream.Signature(Walk)), "o": Out(stream.Signature(Range))})

    def elaborate(self, platform):
        m = Module()
        job, o = Signal(Walk), self.o
        waits, walks = Signal(), Signal()  # the chain's first iteration is found; its iterations are walked
        left, at, following = Signal(REGISTER_BITS), Signal(WORDS), Signal(WORDS)  # starts of this and the next one
        words = job.words[:self.most.bit_length() or None]
        total = Signal(1 + max(ENOUGH, len(words)))
        open_, last, leaves, moves = Signal(), Signal(), Signal(), Signal()  # `open_`: the output has a range's begin
        m.d.comb += [
            self.i.ready.eq(~waits & ~walks), last.eq(left == 1),
            total.eq(Mux(open_, o.p.count[:len(total)], 0) + words), moves.eq(walks & (~o.valid | o.ready))]
        parts = self._tiles(m, job, at, following) if self.most else self._rows(m, job, at, following, waits, moves)
        m.d.comb += leaves.eq(last | parts | (total >> ENOUGH).any())
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [job.eq(self.i.p), waits.eq(1)]
        with m.If(waits):
            m.d.sync += [waits.eq(0), walks.eq(1), at.eq(job.first), left.eq(job.iterations)]
        with m.If(o.ready):
            m.d.sync += o.valid.eq(0)
        with m.If(moves):
            m.d.sync += [left.eq(left - 1), at.eq(following), open_.eq(~leaves), walks.eq(~last), o.valid.eq(leaves),
                         o.p.count.eq(total), o.p.tag.eq(job.tag), o.p.last.eq(last)]
            with m.If(~open_):
                m.d.sync += o.p.first.eq(at)
        return m

    def _tiles(self, m, job, at, following):
        """Iterations that follow each other. Returns whether a range must end."""
        m.d.comb += following.eq(at + Mux(job.inc, job.words, 0))
        return ~job.inc

    def _rows(self, m, job, at, following, waits, moves):
        """Iterations with strides along rows and from row to row. Returns whether a range must end."""
        row, left, last, joined = Signal(WORDS), Signal(REGISTER_BITS), Signal(), Signal()  # of its iterations
        m.d.comb += [last.eq(left == 1), following.eq(
            Mux(last, row, at) + Mux(job.inc, Mux(last, job.stride_y, job.stride_x), 0))]
        with m.If(waits):
            m.d.sync += [row.eq(job.first), left.eq(job.iterations_x),
                         joined.eq(job.inc & (job.stride_x == job.words))]
        with m.If(moves):
            m.d.sync += left.eq(Mux(last, job.iterations_x, left - 1))
            with m.If(last):
                m.d.sync += row.eq(following)
        return last | ~joined
