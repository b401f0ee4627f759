"""Copies words of server memory to the chip, to accumulators and to exponents."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.outside import Range
from concord.hw.trainer.wires import CopyJob, Word, chip_writer, engine, exponent_writer, row_adder


class LoadEngine(wiring.Component):
    """Executes copies whose source lies in server memory.

    Members:
        job, ended: as `wires.engine`. A job has ended when its last word is written on the chip.
        read_range: Out(stream {first, count, tag, last}). Ranges of server memory to read.
        words: In(stream of Word). Their words.
        write, row_add, exponent_write: as `wires.chip_writer`, `wires.row_adder` and `wires.exponent_writer`.

    Timing:
        The words of a job are asked for while those of the job before it come.
    """

    def __init__(self):
        super().__init__({
            **engine(CopyJob), "read_range": Out(stream.Signature(Range)), "words": In(stream.Signature(Word)),
            **chip_writer(), **row_adder(), **exponent_writer()})

    def elaborate(self, platform):
        return Module()
