"""A first-in first-out queue for a sender that reserves its space."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2
from concord.hw.lib.arithmetic import UNCHECKED
from concord.hw.lib.pipeline import delay_control

PART = 36  #: Largest number of bits that one set of control registers drives.
#: Attributes of a memory in block RAM. What it reads while the same word is written is not used.
BLOCK = UNCHECKED | {"ram_style": "block"}


class ReservedQueue(wiring.Component):
    """Holds transfers in order. It does not check for space, so that little fans out to all bits of a wide word.

    A word lies in parts, each with control registers of its own, which go in step.

    Args:
        shape: Shape of the payload.
        depth: Smallest number of transfers held, until they leave `o`. It is rounded up to a power of two.
        deep:  The queue lies in block RAM, as one part, which takes fewer cells and one cycle more.

    Members:
        i: In(stream). Always ready; the sender must not send without space.
        o: Out(stream). Transfers out.

    Timing:
        One transfer a cycle in and out; latency 2 cycles, or 3 if `deep`.
    """

    def __init__(self, shape, depth: int, deep: bool = False):
        self.shape, self.address_bits, self.deep = shape, ceil_log2(depth), deep
        self.depth = 1 << self.address_bits
        super().__init__({"i": In(stream.Signature(shape, always_ready=True)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        taken, given = Value.cast(self.i.payload), Value.cast(self.o.payload)
        if self.deep:
            self._block(m, taken, given)
            return m
        for k, first in enumerate(range(0, len(taken), PART)):
            part = slice(first, first + PART)
            valid = self._part(m, k, taken[part], given[part])
            if k == 0:
                m.d.comb += self.o.valid.eq(valid)
        return m

    def _block(self, m, taken, given):
        """Connect the bits of a deep queue. What leaves next is always read, and there two cycles after its write."""
        m.submodules.memory = memory = Memory(shape=len(taken), depth=self.depth, init=[], attrs=BLOCK)
        write, read = memory.write_port(), memory.read_port()
        entering, leaving, load = Signal(self.address_bits + 1), Signal(self.address_bits + 1), Signal()
        m.d.comb += [
            write.addr.eq(entering), write.data.eq(taken), write.en.eq(self.i.valid), read.addr.eq(leaving + load),
            load.eq((delay_control(m, entering, 1) != leaving) & (self.o.ready | ~self.o.valid))]
        m.d.sync += [entering.eq(entering + self.i.valid), leaving.eq(leaving + load),
                     self.o.valid.eq(load | (self.o.valid & ~self.o.ready))]
        with m.If(load):
            m.d.sync += given.eq(read.data)

    def _part(self, m, k: int, taken, given):
        """Connect the bits of one part. Returns whether there is a word at `o`."""
        m.submodules[f"memory{k}"] = memory = Memory(shape=len(taken), depth=self.depth, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        entering, leaving, some, valid = (
            Signal(bits, name=f"{name}{k}", attrs={"keep": 1}) for name, bits in
            (("entering", self.address_bits), ("leaving", self.address_bits), ("some", 1), ("valid", 1)))
        load, word = Signal(name=f"load{k}"), Signal(len(taken), name=f"word{k}")
        following = (leaving + 1)[:self.address_bits]
        m.d.comb += [
            write.addr.eq(entering), write.data.eq(taken), write.en.eq(self.i.valid), read.addr.eq(leaving),
            load.eq(some & (self.o.ready | ~valid)), given.eq(word)]
        m.d.sync += [
            entering.eq(entering + self.i.valid), leaving.eq(leaving + load),
            some.eq(self.i.valid | (some & ~(load & (following == entering)))),
            valid.eq(load | (valid & ~self.o.ready))]
        with m.If(load):
            m.d.sync += word.eq(read.data)
        return valid
