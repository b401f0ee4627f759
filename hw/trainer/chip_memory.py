"""The on-chip memory of a trainer, which engines read and write through ports of their own."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.trainer.grants import chosen, first
from concord.hw.trainer.skewed_memory import SkewedMemory
from concord.hw.trainer.wires import CHIP_LATENCY, ChipAnswer, ChipRead, ChipWrite, Word

_MEMORIES = 4


class ChipMemory(wiring.Component):
    """Hold the words on the chip in four memories, by the highest two bits of the address.

    Each memory takes a read and a write every cycle, from the first port that asks for it. Ports with other memories go
    on meanwhile. A read of zeros asks for none, and is taken at once.

    Args:
        words:   Number of words, a multiple of 256. Where it is no power of two, the last memories are smaller.
        readers: Number of ports that read.
        writers: Number of ports that write.

    Members:
        read0, ...: In(stream of ChipRead). Port 0 comes first.
        answer0, ...: Out(ChipAnswer). CHIP_LATENCY cycles after the read was taken.
        write0, ...: In(stream of ChipWrite). Port 0 comes first.

    Timing:
        What is written can be read from the next cycle on; what a read of the same word yields in the same cycle is
        undefined. A reset does not change the memory; reads that are under way get no answer.
    """

    def __init__(self, words: int, readers: int, writers: int):
        self.words, self.readers, self.writers = words, readers, writers
        self.size = 1 << (words - 1).bit_length() - (_MEMORIES - 1).bit_length()
        super().__init__({
            **{f"read{k}": In(stream.Signature(ChipRead)) for k in range(readers)},
            **{f"answer{k}": Out(ChipAnswer) for k in range(readers)},
            **{f"write{k}": In(stream.Signature(ChipWrite)) for k in range(writers)}})

    def elaborate(self, platform):
        m = Module()
        depths = [min(self.size, self.words - start) for start in range(0, self.words, self.size)]
        memories = [SkewedMemory(depth) for depth in depths]
        reads, answers, writes = ([getattr(self, f"{name}{k}") for k in range(count)] for name, count in (
            ("read", self.readers), ("answer", self.readers), ("write", self.writers)))
        m.submodules += memories
        read, written = [], []  # for each memory, which port it serves
        for k, memory in enumerate(memories):
            read.append(first(m, [port.valid & ~port.p.zeros & (self._number(port) == k) for port in reads]))
            written.append(first(m, [port.valid & (self._number(port) == k) for port in writes]))
            asked, new = chosen(read[-1], [port.p for port in reads]), chosen(written[-1], [port.p for port in writes])
            m.d.comb += [*(memory.read[name].eq(asked[name]) for name in ("word", "column", "lane")),
                         memory.write.valid.eq(Cat(written[-1]).any()),
                         *(memory.write[name].eq(new[name]) for name in ("word", "bytes"))]
        for port, *served in zip(writes, *written, strict=True):
            m.d.comb += port.ready.eq(Cat(served).any())
        for port, answer, *served in zip(reads, answers, *read, strict=True):
            m.d.comb += port.ready.eq(port.p.zeros | Cat(served).any())
            self._answer(m, port, answer, memories)
        return m

    def _number(self, port):
        """The number of the memory in which a word lies."""
        return port.p.word[exact_log2(self.size):(self.words - 1).bit_length()]

    def _answer(self, m, port, answer, memories):
        """Give a port what the memory has read in which its word lies; zeros where it has asked for none."""
        number, zeros = (delay(m, value, SkewedMemory.latency) for value in (self._number(port), port.p.zeros))
        held = Signal(Word)
        m.d.sync += held.eq(Mux(zeros, 0, Array(memory.bytes for memory in memories)[number]))
        m.d.comb += [answer.valid.eq(delay_control(m, port.valid & port.ready, CHIP_LATENCY)), answer.bytes.eq(held)]
