"""A first-in first-out queue for a sender that reserves its space."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2


class ReservedQueue(wiring.Component):
    """Holds transfers in order. It does not check for space, so only the addresses fan out to all bits of a wide word.

    Args:
        shape: Shape of the payload.
        depth: Smallest number of transfers held, until they leave `o`. It is rounded up to a power of two.

    Members:
        i: In(stream). Always ready; the sender must not send without space.
        o: Out(stream). Transfers out.

    Timing:
        One transfer a cycle in and out; latency 2 cycles.
    """

    def __init__(self, shape, depth: int):
        self.shape, self.address_bits = shape, ceil_log2(depth)
        self.depth = 1 << self.address_bits
        super().__init__({"i": In(stream.Signature(shape, always_ready=True)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        width = Shape.cast(self.shape).width
        m.submodules.memory = memory = Memory(shape=width, depth=self.depth, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        entering, leaving, some, load = Signal(self.address_bits), Signal(self.address_bits), Signal(), Signal()
        m.d.comb += [
            write.addr.eq(entering), write.data.eq(self.i.payload), write.en.eq(self.i.valid), read.addr.eq(leaving),
            load.eq(some & (self.o.ready | ~self.o.valid))]
        m.d.sync += [
            entering.eq(entering + self.i.valid), leaving.eq(leaving + load),
            some.eq(self.i.valid | (some & ~(load & ((leaving + 1)[:self.address_bits] == entering)))),
            self.o.valid.eq(load | (self.o.valid & ~self.o.ready))]
        with m.If(load):
            m.d.sync += Value.cast(self.o.payload).eq(read.data)
        return m
