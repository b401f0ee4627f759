"""Copies words of the chip, of accumulators and of exponents, zeros and patches to server memory."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.dram.burst_writer import ROOM
from concord.hw.lib.outside import Range
from concord.hw.trainer.wires import CopyJob, Word, chip_reader, engine, exponent_reader, row_reader


class StoreEngine(wiring.Component):
    """Executes copies to server memory.

    Members:
        job, ended: as `wires.engine`. A job has ended when the memory has answered its last burst.
        read, answer, row, sums, exponent, exponents: as `wires.chip_reader`, `wires.row_reader` and
            `wires.exponent_reader`.
        write_range: Out(stream {first, count, tag, last}). Ranges of server memory to write; `last` ends a job.
        write_word: Out(stream of Word). Their words.
        write_room: In. Number of words that `write_word` takes without a stall from now on.
        write_done: In(1). Pulse: a range with `last` was answered, and all ranges before it.
    """

    def __init__(self):
        super().__init__({
            **engine(CopyJob), **chip_reader(), **row_reader(), **exponent_reader(),
            "write_range": Out(stream.Signature(Range)), "write_word": Out(stream.Signature(Word)),
            "write_room": In(range(ROOM + 1)), "write_done": In(1)})

    def elaborate(self, platform):
        return Module()
