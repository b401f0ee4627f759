"""A first-in first-out queue with stream ends, and streams that go through one."""

from amaranth import *
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out


class Queue(wiring.Component):
    """Holds transfers in order.

    Args:
        shape: Shape of the payload.
        depth: Number of transfers that the queue holds, at least 3; 2 would alternate with the output register.
        deep:  The queue lies in block RAM, whose output is slow: registers follow it, which hold one transfer more.

    Members:
        i: In(stream). Transfers in.
        o: Out(stream). Transfers out.
        level: Out. Number of transfers inside.

    Timing:
        One transfer a cycle in and out; latency 2 cycles, or 3 if `deep`.
    """

    def __init__(self, shape, depth: int, deep: bool = False):
        self.shape, self.depth, self.deep = shape, max(3, depth), deep
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)),
                          "level": Out(range(self.depth + 1 + deep))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = queue = fifo.SyncFIFOBuffered(width=Shape.cast(self.shape).width, depth=self.depth)
        m.d.comb += [queue.w_data.eq(self.i.payload), queue.w_en.eq(self.i.valid), self.i.ready.eq(queue.w_rdy)]
        if not self.deep:
            m.d.comb += [Value.cast(self.o.payload).eq(queue.r_data), self.o.valid.eq(queue.r_rdy),
                         queue.r_en.eq(self.o.ready), self.level.eq(queue.level)]
            return m
        m.d.comb += [queue.r_en.eq(~self.o.valid | self.o.ready), self.level.eq(queue.level + self.o.valid)]
        with m.If(queue.r_en):
            m.d.sync += [Value.cast(self.o.payload).eq(queue.r_data), self.o.valid.eq(queue.r_rdy)]
        return m


def through_queue(m: Module, name: str, depth: int, source, sink):
    """Connect two streams through a `Queue` of this depth, the submodule `name`."""
    m.submodules[name] = queue = Queue(source.p.shape(), depth)
    wiring.connect(m, source, queue.i)
    wiring.connect(m, queue.o, sink)
