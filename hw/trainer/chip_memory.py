"""The on-chip memory of a trainer, which engines read and write through ports of their own."""

from collections.abc import Sequence

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.trainer.grants import chosen, first
from concord.hw.trainer.skewed_memory import SkewedMemory, rotated, turn
from concord.hw.trainer.wires import CHIP_LATENCY, ChipAnswer, ChipRead, ChipWrite, Word

_MEMORIES = 4


class ChipMemory(wiring.Component):
    """Hold the words on the chip in four memories, by the highest two bits of the address.

    Each memory takes a read and a write every cycle, and each path, too. Ports have a path for their reads or writes,
    which turns words: a path with few ports lets more engines go on beside each other, and takes more cells. A read of
    zeros asks for no memory.

    Args:
        words:   Number of words, a multiple of 256. Where it is no power of two, the last memories are smaller.
        readers: Number of the path of each port that reads.
        writers: Number of the path of each port that writes.

    Members:
        read0, ...: In(stream of ChipRead). Port 0 comes first, on its path and for its memory.
        answer0, ...: Out(ChipAnswer). CHIP_LATENCY cycles after the read was taken.
        write0, ...: In(stream of ChipWrite). Port 0 comes first, on its path and for its memory.

    Timing:
        What is written can be read from the next cycle on; what a read of the same word yields in the same cycle is
        undefined. A reset does not change the memory; reads that are under way get no answer.
    """

    def __init__(self, words: int, readers: Sequence[int], writers: Sequence[int]):
        self.words, self.readers, self.writers = words, readers, writers
        self.size = 1 << (words - 1).bit_length() - (_MEMORIES - 1).bit_length()
        super().__init__({
            **{f"read{k}": In(stream.Signature(ChipRead)) for k in range(len(readers))},
            **{f"answer{k}": Out(ChipAnswer) for k in range(len(readers))},
            **{f"write{k}": In(stream.Signature(ChipWrite)) for k in range(len(writers))}})

    def elaborate(self, platform):
        m = Module()
        depths = [min(self.size, self.words - start) for start in range(0, self.words, self.size)]
        memories = [SkewedMemory(depth) for depth in depths]
        reads, answers, writes = ([getattr(self, f"{name}{k}") for k in range(len(paths))] for name, paths in (
            ("read", self.readers), ("answer", self.readers), ("write", self.writers)))
        m.submodules += memories
        asked = self._serve(m, reads, self.readers, [~port.p.zeros for port in reads])
        self._write(m, memories, self._serve(m, writes, self.writers, [Const(1)] * len(writes)))
        for k, memory in enumerate(memories):
            served = [valid & ~read.zeros & (self._number(read) == k) for valid, read in asked]
            found = chosen(served, [read for _, read in asked])
            m.d.comb += [memory.read[name].eq(found[name]) for name in ("word", "column", "lane")]
        found = [self._answer(m, read, memories) for _, read in asked]
        for port, answer, path in zip(reads, answers, self.readers, strict=True):
            m.d.comb += [answer.valid.eq(delay_control(m, port.valid & port.ready, CHIP_LATENCY)),
                         answer.bytes.eq(found[path])]
        return m

    def _number(self, access):
        """The number of the memory in which a word lies."""
        return access.word[exact_log2(self.size):(self.words - 1).bit_length()]

    def _serve(self, m, ports, paths, asks):
        """Serve the first port of each path, if its memory serves none ahead of it. Returns for each path whether a
        port was served, and with what.
        """
        granted: list = [None] * len(ports)
        for path in sorted(set(paths)):
            mine = [k for k, each in enumerate(paths) if each == path]
            for k, grant in zip(mine, first(m, [ports[k].valid for k in mine]), strict=True):
                granted[k] = grant
        for k, port in enumerate(ports):
            ahead = Cat(granted[q] & asks[q] & (self._number(ports[q].p) == self._number(port.p))
                        for q in range(k) if paths[q] != paths[k])
            m.d.comb += port.ready.eq(granted[k] & ~(asks[k] & ahead.any()))
        made = []
        for path in sorted(set(paths)):
            mine = [k for k, each in enumerate(paths) if each == path]
            made.append((Cat(ports[k].ready for k in mine).any(),
                         chosen([granted[k] for k in mine], [ports[k].p for k in mine])))
        return made

    def _write(self, m, memories, writes):
        """Turn the words of each path, and give each memory those of one path."""
        words, lanes, there = [], [], []
        for valid, write in writes:
            word = delay(m, write.word, 1)
            words.append(delay(m, word, 1))
            lanes.append(rotated(m, list(delay(m, write.bytes, 1)), turn(-word), last=False))
            there.append([delay_control(m, valid & (self._number(write) == k), 2) for k in range(len(memories))])
        for k, memory in enumerate(memories):
            here = [path[k] for path in there]
            word, stored = words[0], Cat(lanes[0])
            for valid, other, given in list(zip(here, words, lanes, strict=True))[1:]:
                word, stored = Mux(valid, other, word), Mux(valid, Cat(given), stored)
            m.d.comb += [memory.write.valid.eq(Cat(here).any()), memory.write.word.eq(word),
                         Value.cast(memory.write.banks).eq(stored)]

    def _answer(self, m, read, memories):
        """What the memory of a read has found for it; zeros where it has asked for none."""
        number, zeros = (delay(m, value, SkewedMemory.latency) for value in (self._number(read), read.zeros))
        held, distance = Signal(Word), delay(m, turn(Mux(read.column, read.lane, read.word)), SkewedMemory.latency + 1)
        m.d.sync += held.eq(Mux(zeros, 0, Array(memory.banks for memory in memories)[number]))
        return Cat(rotated(m, list(held), distance, last=True))
