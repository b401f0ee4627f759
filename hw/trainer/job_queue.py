"""A job that waits for instructions in flight before it goes to its engine."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.trainer.hazards import PLACES


class JobQueue(wiring.Component):
    """Holds one job.

    Members:
        put: In(1). job: In. A job comes, which waits until no instruction at the places `waits` is active; not while
            `full`.
        waits: In(8). active: In(8). Places of instructions in flight.
        full: Out(1). There is a job.
        o: Out(stream of a job). The job, once it waits for nothing.

    Timing:
        A job leaves two cycles after the last instruction that it waits for has ended.
    """

    def __init__(self, job):
        super().__init__({
            "put": In(1), "job": In(job), "waits": In(PLACES), "active": In(PLACES), "full": Out(1),
            "o": Out(stream.Signature(job))})

    def elaborate(self, platform):
        m = Module()
        waits = Signal(PLACES)
        m.d.sync += waits.eq(waits & self.active)
        with m.If(self.full & ~waits.any()):
            m.d.sync += self.o.valid.eq(1)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [self.o.valid.eq(0), self.full.eq(0)]
        with m.If(self.put):
            m.d.sync += [self.full.eq(1), self.o.p.eq(self.job), waits.eq(self.waits & self.active)]
        return m
