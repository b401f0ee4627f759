"""Walks through the words of Dram that a chain reads or writes, range by range."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.outside import WORDS, Range, Walk
from concord.spec.isa.instructions import REGISTER_BITS

ENOUGH = 7  #: Logarithm of the number of words at which a range is long enough.


class RangeWalker(wiring.Component):
    """Makes ranges of the words of chains; neighbours along x that follow each other make one range.

    Members:
        i: In(stream Walk). Chains.
        o: Out(stream Range). Their ranges, in order.

    Timing:
        One iteration a cycle; two cycles more for a chain. A range ends with its row of iterations, or at 128 words.
    """

    def __init__(self):
        super().__init__({"i": In(stream.Signature(Walk)), "o": Out(stream.Signature(Range))})

    def elaborate(self, platform):
        m = Module()
        job, o = Signal(Walk), self.o
        waits, walks = Signal(), Signal()  # the chain's first iteration is found; its iterations are walked
        at, row, first = Signal(WORDS), Signal(WORDS), Signal(WORDS)
        left, left_x = Signal(REGISTER_BITS), Signal(REGISTER_BITS)
        gathered, open_, joined = Signal(WORDS), Signal(), Signal()  # words of the present range; it has some
        total, last, last_x, leaves, moves = Signal(WORDS), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~waits & ~walks), last.eq(left == 1), last_x.eq(left_x == 1),
            total.eq(Mux(open_, gathered, 0) + job.words),
            leaves.eq(last | last_x | ~joined | (total >> ENOUGH).any()), moves.eq(walks & (~o.valid | o.ready))]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [job.eq(self.i.p), waits.eq(1)]
        with m.If(waits):
            m.d.sync += [waits.eq(0), walks.eq(1), at.eq(job.first), row.eq(job.first), left.eq(job.iterations),
                         left_x.eq(job.iterations_x), open_.eq(0), joined.eq(job.inc & (job.stride_x == job.words))]
        with m.If(o.ready):
            m.d.sync += o.valid.eq(0)
        with m.If(moves):
            following = Signal(WORDS)  # the start of the next iteration
            m.d.comb += following.eq(Mux(last_x, row, at) + Mux(job.inc, Mux(last_x, job.stride_y, job.stride_x), 0))
            m.d.sync += [
                left.eq(left - 1), left_x.eq(Mux(last_x, job.iterations_x, left_x - 1)), at.eq(following),
                open_.eq(~leaves), gathered.eq(total), walks.eq(~last)]
            with m.If(last_x):
                m.d.sync += row.eq(following)
            with m.If(~open_):
                m.d.sync += first.eq(at)
            with m.If(leaves):
                m.d.sync += [o.valid.eq(1), o.p.first.eq(Mux(open_, first, at)), o.p.count.eq(total),
                             o.p.tag.eq(job.tag), o.p.last.eq(last)]
        return m
