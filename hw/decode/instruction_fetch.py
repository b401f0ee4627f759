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
        One instruction a cycle; a jump costs two cycles. Reset leaves the buffer as it is.
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
        following = Signal(isa.END_BITS)
        taken = self.o.valid & self.o.ready
        step = self.run & (~self.o.valid | taken) & ~(taken & self.jump)
        m.d.comb += [read.en.eq(step), read.addr.eq(following), self.o.p.word.eq(read.data),
                     self.o.p.outside.eq(self.o.p.address == self.config.instructions)]
        with m.If(~self.run):
            m.d.sync += [following.eq(0), self.o.valid.eq(0)]
        with m.Elif(taken & self.jump):
            m.d.sync += [following.eq(self.target), self.o.valid.eq(0)]
        with m.Elif(step):
            m.d.sync += [self.o.valid.eq(1), self.o.p.address.eq(following), following.eq(following + 1)]
        return m
