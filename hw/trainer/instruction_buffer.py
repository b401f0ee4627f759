"""The instruction buffer: a program, and zeros behind it."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import UNCHECKED
from concord.spec.trainer.instructions import WORD

#: A word of a program on its way into the buffer.
ProgramWord = data.StructLayout({"word": WORD, "last": 1})


class InstructionBuffer(wiring.Component):
    """Holds a program.

    Args:
        instructions: Number of words that it holds.

    Members:
        load: In(stream of ProgramWord). The words of a program, from word 0; it is always taken. `last` ends a program.
        forget: In(1). The next word that comes is word 0, whatever came before.
        address: In. Address of a word; one beyond the buffer is outside.
        word: Out(128). The word, or 0 behind the program, one cycle later.
        outside: Out(1). The address is beyond the buffer, at once.
    """

    def __init__(self, instructions: int):
        self.instructions = instructions
        super().__init__({
            "load": In(stream.Signature(ProgramWord, always_ready=True)), "forget": In(1),
            "address": In(range(instructions + 2)), "word": Out(WORD), "outside": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=WORD, depth=self.instructions, init=[], attrs=UNCHECKED)
        write, read = memory.write_port(), memory.read_port()
        place, length, there = Signal(range(self.instructions + 1)), Signal(range(self.instructions + 1)), Signal()
        m.d.comb += [write.addr.eq(place), write.data.eq(self.load.p.word),
                     write.en.eq(self.load.valid & (place != self.instructions)),
                     read.addr.eq(self.address), self.outside.eq(self.address >= self.instructions),
                     self.word.eq(Mux(there, read.data, 0))]
        m.d.sync += there.eq(self.address < length)
        with m.If(write.en):
            m.d.sync += [place.eq(place + 1), length.eq(place + 1)]
        with m.If(self.forget | (self.load.valid & self.load.p.last)):
            m.d.sync += place.eq(0)
        return m
