"""A first-in first-out queue in block RAM that costs few gates."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.lib.arithmetic import UNCHECKED


class BlockQueue(wiring.Component):
    """Holds payloads in order, in block RAM with a register behind it.

    It reads no address that it writes in the same cycle, so that synthesis need not add a multiplexer to the RAM.

    Args:
        bits:  Number of bits of a payload.
        depth: Payloads that it holds, a power of two. Those on their way to `o`, two at most, are beyond it.

    Members:
        i: In(stream of bits). Payloads in. o: Out(stream of bits). Payloads out, from registers.

    Timing:
        One payload a cycle in and out; latency 3 cycles.
    """

    def __init__(self, bits: int, depth: int):
        self.depth = depth
        super().__init__({"i": In(stream.Signature(bits)), "o": Out(stream.Signature(bits))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = ram = memory.Memory(shape=len(self.i.p), depth=self.depth, init=[], attrs=UNCHECKED)
        into, out = ram.write_port(), ram.read_port()
        bits = exact_log2(self.depth)
        written, read = Signal(bits + 1), Signal(bits + 1)  # numbers of payloads; one bit more tells full from empty
        there, free = Signal(), Signal()  # the RAM's output is a payload; it may move on
        same = written[:bits] == read[:bits]
        m.d.comb += [
            self.i.ready.eq(~(same & (written[bits] != read[bits]))), into.en.eq(self.i.valid & self.i.ready),
            into.addr.eq(written), into.data.eq(self.i.p), out.addr.eq(read), free.eq(~self.o.valid | self.o.ready),
            out.en.eq((written != read) & (~there | free))]
        m.d.sync += [written.eq(written + into.en), read.eq(read + out.en), there.eq(out.en | (there & ~free))]
        with m.If(free):
            m.d.sync += [self.o.valid.eq(there), self.o.p.eq(out.data)]
        return m
