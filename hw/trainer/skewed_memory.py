"""One of the on-chip memories of a trainer: 16 banks, whose words are read by rows and by columns."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import UNCHECKED, low_high
from concord.hw.lib.pipeline import delay
from concord.hw.trainer.wires import Word
from concord.spec.trainer.config import LANES

_DIGIT = 2  #: Bits of a rotation that one stage handles.
_BITS = (LANES - 1).bit_length()


def memory_read(depth: int) -> data.StructLayout:
    """A read of a row, or of byte `lane` of the 16 words from `word` on, which is a multiple of 16."""
    return data.StructLayout({"word": range(depth), "column": 1, "lane": _BITS})


def memory_write(depth: int) -> data.StructLayout:
    """A write of a row: a byte for each bank."""
    return data.StructLayout({"valid": 1, "word": range(depth), "banks": Word})


class SkewedMemory(wiring.Component):
    """Hold words of 16 bytes so that rows and columns of 16 x 16 bytes are read in one cycle.

    Byte c of word a lies in bank (a + c) mod 16 at address a. The word a is read from that address of all banks, and
    then rotated by a. Column c from word a on, a multiple of 16, lies in bank b at a + (b - c) mod 16, and is rotated
    by c. Words are rotated by `rotated`, outside.

    Args:
        depth: Number of words, a multiple of 16.

    Members:
        read: In({word, column, lane}).
        write: In({valid, word, banks}). It comes two cycles later than a read that does not yet see it.
        banks: Out(Word). What was read `latency` cycles ago, as it lies in the banks.

    Timing:
        A read and a write every cycle. What a read yields of a word that is written two cycles later is undefined. A
        reset does not change the memory.
    """

    latency = 3

    def __init__(self, depth: int):
        self.depth = depth
        super().__init__({"read": In(memory_read(depth)), "write": In(memory_write(depth)), "banks": Out(Word)})

    def elaborate(self, platform):
        m = Module()
        asked = delay(m, self.read, 1)
        low, line = low_high(asked.word, LANES)
        first = Mux(asked.column, -asked.lane, low)
        row, column = delay(m, line, 1), asked.column.replicate(_BITS)
        for bank in range(LANES):
            m.submodules[f"bank{bank}"] = memory = Memory(shape=8, depth=self.depth, init=[], attrs=UNCHECKED)
            writer, reader = memory.write_port(), memory.read_port()
            lowest = delay(m, ((column & bank) + first)[:_BITS], 1)
            m.d.comb += [writer.en.eq(self.write.valid), writer.addr.eq(self.write.word),
                         writer.data.eq(self.write.banks[bank]), reader.addr.eq(Cat(lowest, row)), reader.en.eq(1),
                         self.banks[bank].eq(reader.data)]
        return m


def turn(number):
    """By how many lanes words turn, of a number that counts modulo the lanes of a word."""
    return number[:_BITS]


def rotated(m: Module, lanes: list, distance, *, last: bool) -> list:
    """Lanes, each of which moves down by `distance`; registers lie behind each digit, the last one only with `last`."""
    for low in reversed(range(0, _BITS, _DIGIT)):
        digit = distance[low:low + _DIGIT]
        moved = [[lanes[(lane + (k << low)) % LANES] for k in range(1 << _DIGIT)] for lane in range(LANES)]
        lanes = [Mux(digit[1], Mux(digit[0], d, c), Mux(digit[0], b, a)) for a, b, c, d in moved]
        if low or last:
            lanes, distance = [delay(m, lane, 1) for lane in lanes], delay(m, distance, 1)
    return lanes
