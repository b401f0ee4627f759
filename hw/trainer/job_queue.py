"""Jobs that wait for instructions in flight before they go to their engine."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.trainer.hazards import FLIGHTS


class JobQueue(wiring.Component):
    """Holds one job, or two.

    Args:
        job: Its layout.
        two: Whether another job may come while one waits, so that what follows both is dispatched, too.

    Members:
        put: In(1). job: In. A job comes, which waits until no instruction in the slots `waits` is active; not while
            `full`.
        waits: In(8). active: In(8). Slots of instructions in flight.
        full: Out(1). There is no room for a job.
        o: Out(stream of a job). The first job, once it waits for nothing.

    Timing:
        A job leaves two cycles after the last instruction that it waits for has ended. With `two`, a job goes to the
        first slot in the second cycle after it came or that slot became free.
    """

    def __init__(self, job, two: bool = False):
        self.two = two
        super().__init__({
            "put": In(1), "job": In(job), "waits": In(FLIGHTS), "active": In(FLIGHTS), "full": Out(1),
            "o": Out(stream.Signature(job))})

    def elaborate(self, platform):
        m = Module()
        there, comes, job, waits, left = Signal(), Signal(), Signal.like(self.job), Signal(FLIGHTS), Signal(FLIGHTS)
        m.d.sync += left.eq(left & self.active)
        with m.If(there & ~left.any()):
            m.d.sync += self.o.valid.eq(1)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [self.o.valid.eq(0), there.eq(0)]
        with m.If(comes):
            m.d.sync += [there.eq(1), self.o.p.eq(job), left.eq(waits & self.active)]
        if not self.two:
            m.d.comb += [self.full.eq(there), comes.eq(self.put), job.eq(self.job), waits.eq(self.waits)]
            return m
        m.d.comb += comes.eq(self.full & ~there)
        m.d.sync += waits.eq(waits & self.active)
        with m.If(comes):
            m.d.sync += self.full.eq(0)
        with m.If(self.put):
            m.d.sync += [self.full.eq(1), job.eq(self.job), waits.eq(self.waits & self.active)]
        return m
