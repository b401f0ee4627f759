"""The instruction buffer and its read pointer."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib import message_payloads
from concord.hw.lib.payloads import Fetched
from concord.spec.isa import instructions as isa
from concord.spec.machine.config import Config


class InstructionFetch(wiring.Component):
    """Reads instructions in order of addresses, until a jump.

    Members:
        program: In(stream Program). Instructions for the buffer, always taken.
        run: In(1). While low, no instruction is read, and the next one is the first.
        jump, target: In. With the cycle that takes an instruction: the next one is read from `target`.
        o: Out(stream Fetched). Instructions.

    Timing:
        One instruction every two cycles: a register holds the buffer's output, which comes late in its cycle. A jump
        costs another cycle. Reset leaves the buffer as it is.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "program": In(stream.Signature(message_payloads.Program)),
            "run": In(1), "jump": In(1), "target": In(isa.END_BITS),
            "o": Out(stream.Signature(Fetched))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.buffer = buffer = memory.Memory(shape=isa.WORD, depth=self.config.instructions, init=[])
        read, write = buffer.read_port(), buffer.write_port()
        m.d.comb += [self.program.ready.eq(1), write.en.eq(self.program.valid),
                     write.addr.eq(self.program.p.address), write.data.eq(self.program.p.data)]

        # `following` is read while the instruction at `self.o.p.address` waits to be taken.
        following, settled = Signal(isa.END_BITS), Signal()  # the buffer's output is the instruction at `following`
        o = self.o
        m.d.comb += [read.en.eq(1), read.addr.eq(following)]
        with m.If(~o.valid):
            m.d.sync += [o.p.word.eq(read.data), o.p.address.eq(following),
                         o.p.outside.eq(following == self.config.instructions)]
        m.d.sync += settled.eq(1)
        with m.If(~self.run):
            m.d.sync += [following.eq(0), o.valid.eq(0), settled.eq(0)]
        with m.Elif(o.valid & o.ready):
            m.d.sync += o.valid.eq(0)
            with m.If(self.jump):
                m.d.sync += [following.eq(self.target), settled.eq(0)]
        with m.Elif(~o.valid & settled):
            m.d.sync += [o.valid.eq(1), following.eq(following + 1)]
        return m
