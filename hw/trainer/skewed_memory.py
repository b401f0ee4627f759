"""One of the on-chip memories of a trainer: 16 banks, whose words are read by rows and by columns."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import UNCHECKED, low_high
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.trainer.wires import Word
from concord.spec.trainer.config import LANES

_DIGIT = 2  #: Bits of a rotation that one stage handles.
_BITS = (LANES - 1).bit_length()


def memory_read(depth: int) -> data.StructLayout:
    """A read of a row, or of byte `lane` of the 16 words from `word` on, which is a multiple of 16."""
    return data.StructLayout({"word": range(depth), "column": 1, "lane": _BITS})


def memory_write(depth: int) -> data.StructLayout:
    """A write of a row."""
    return data.StructLayout({"valid": 1, "word": range(depth), "bytes": Word})


class SkewedMemory(wiring.Component):
    """Hold words of 16 bytes so that rows and columns of 16 x 16 bytes are read in one cycle.

    Byte c of word a lies in bank (a + c) mod 16 at address a. The word a is read from that address of all banks and
    rotated by a. Column c from word a on, a multiple of 16, lies in bank b at a + (b - c) mod 16, and is rotated by c.

    Args:
        depth: Number of words, a multiple of 16.

    Members:
        read: In({word, column, lane}).
        write: In({valid, word, bytes}).
        bytes: Out(Word). What was read `latency` cycles ago.

    Timing:
        A read and a write every cycle. What is written can be read from the next cycle on; what a read of the same word
        yields in the same cycle is undefined. A reset does not change the memory.
    """

    latency = 5

    def __init__(self, depth: int):
        self.depth = depth
        super().__init__({"read": In(memory_read(depth)), "write": In(memory_write(depth)), "bytes": Out(Word)})

    def elaborate(self, platform):
        m = Module()
        # Reads and writes come to the banks with the third clock edge, so that a read sees what was written in cycles
        # before: there are no registers between the last rotation of a write and the banks.
        asked, written = delay(m, self.read, 1), delay(m, self.write, 1)
        low, line = low_high(asked.word, LANES)
        turn, first = Mux(asked.column, asked.lane, low), Mux(asked.column, -asked.lane, low)
        row, column = delay(m, line, 1), asked.column.replicate(_BITS)
        valid, word = delay_control(m, self.write.valid, 2), delay(m, written.word, 1)
        # Rotations are to lower lanes, so that a write turns by the negative of its word.
        stored = self._rotated(m, list(written.bytes), (-written.word)[:_BITS], last=False)
        read = []
        for bank, byte in enumerate(stored):
            m.submodules[f"bank{bank}"] = memory = Memory(shape=8, depth=self.depth, init=[], attrs=UNCHECKED)
            writer, reader = memory.write_port(), memory.read_port()
            place = delay(m, ((column & bank) + first)[:_BITS], 1)
            m.d.comb += [writer.en.eq(valid), writer.addr.eq(word), writer.data.eq(byte),
                         reader.addr.eq(Cat(place, row)), reader.en.eq(1)]
            read.append(reader.data)
        for lane, byte in enumerate(self._rotated(m, read, delay(m, turn, 2), last=True)):
            m.d.comb += self.bytes[lane].eq(byte)
        return m

    def _rotated(self, m, lanes: list, turn, *, last: bool):
        """Lanes, each of which moves down by `turn`; registers lie behind each digit, the last one only with `last`."""
        for low in reversed(range(0, _BITS, _DIGIT)):
            digit = turn[low:low + _DIGIT]
            moved = [[lanes[(lane + (k << low)) % LANES] for k in range(1 << _DIGIT)] for lane in range(LANES)]
            lanes = [Mux(digit[1], Mux(digit[0], d, c), Mux(digit[0], b, a)) for a, b, c, d in moved]
            if low or last:
                lanes, turn = [delay(m, lane, 1) for lane in lanes], delay(m, turn, 1)
        return lanes
