"""Copies words between on-chip memory, accumulators and exponents, and writes zeros and patches there."""

from amaranth import *
from amaranth.lib import wiring
from concord.hw.trainer.wires import (
    CopyJob,
    chip_reader,
    chip_writer,
    engine,
    exponent_reader,
    exponent_writer,
    row_adder,
    row_reader,
)


class MoveEngine(wiring.Component):
    """Executes copies in which server memory has no part.

    Members:
        job, ended: as `wires.engine`.
        read, answer, row, sums, exponent, exponents: as `wires.chip_reader`, `wires.row_reader` and
            `wires.exponent_reader`.
        write, row_add, exponent_write: as `wires.chip_writer`, `wires.row_adder` and `wires.exponent_writer`.
    """

    def __init__(self):
        super().__init__({
            **engine(CopyJob), **chip_reader(), **row_reader(), **exponent_reader(), **chip_writer(), **row_adder(),
            **exponent_writer()})

    def elaborate(self, platform):
        return Module()
