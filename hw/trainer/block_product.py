"""Multiplies vectors by a block: 256 products in a cycle, in hardware multipliers and in lookup tables."""

from dataclasses import dataclass

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import adder_tree
from concord.hw.lib.pipeline import delay
from concord.hw.mvm.dot_products import SINGLE, TRIPLE, SharedProducts, plane_cycles, plane_dot
from concord.hw.trainer.block_loader import Block
from concord.hw.trainer.wires import Word
from concord.spec.trainer.config import LANES


@dataclass(frozen=True, slots=True)
class Bytes:
    """Range of an operand, as `spec.numbers.formats.Format` says it: bytes with a sign, or without one, too."""

    bits: int
    lowest: int
    highest: int


WEIGHTS, OPERAND = Bytes(8, -128, 127), Bytes(9, -128, 255)
SUM = 20  #: Bits of a sum of 16 products of such numbers, sign included.
PLAIN = 13  #: Bits of a sum of 16 operands.
_LEVELS = (LANES - 1).bit_length()
_CYCLES = _LEVELS + TRIPLE.cycles
LATENCY = 2 + _CYCLES  #: Cycles from a vector to its sums.
BlockSums = data.StructLayout({"sums": data.ArrayLayout(signed(SUM), LANES), "plain": signed(PLAIN)})


class BlockProduct(wiring.Component):
    """sums[c] = sum over k of vector[k] * block[k][c], plain = sum of vector[k] over rows of the block that are there.

    Three columns share two multipliers for each k, as far as these suffice; see `hw.mvm.dot_products`.

    Args:
        multipliers: Most multipliers of 18 x 18 bits.

    Members:
        vector: In(Word).
        low: In(1). Bytes of the vector have no sign.
        begins: In(1). The vector and those behind it meet the block that `block` shows in the next cycle.
        block: In(Block).
        o: Out(BlockSums). LATENCY cycles later.
    """

    def __init__(self, multipliers: int):
        self.multipliers = multipliers
        super().__init__({"vector": In(Word), "low": In(1), "begins": In(1), "block": In(Block), "o": Out(BlockSums)})

    def elaborate(self, platform):
        m = Module()
        block = Signal(Block)
        with m.If(delay(m, self.begins, 1)):
            m.d.sync += block.eq(self.block)
        operand = [delay(m, Cat(byte, byte[-1] & ~self.low), 2).as_signed() for byte in self.vector]
        columns = [[row.bytes[c].as_signed() for row in block] for c in range(LANES)]
        total = adder_tree(m, operand)
        shared, dots = SharedProducts((WEIGHTS, OPERAND), LANES), []
        for group in self._groups():
            made = shared.dots(m, group, columns[len(dots):len(dots) + group.rows], operand, total)
            dots += [delay(m, dot, TRIPLE.cycles - group.cycles) for dot in made]
        for column in columns[len(dots):]:
            dot = plane_dot(m, platform, column, operand, fmts=(WEIGHTS, OPERAND))
            dots.append(delay(m, dot, TRIPLE.cycles - plane_cycles(WEIGHTS.bits)))
        there = [Mux(row.there, each, 0) for row, each in zip(block, operand, strict=True)]
        m.d.comb += [each.eq(dot) for each, dot in zip(self.o.sums, dots, strict=True)]
        m.d.comb += self.o.plain.eq(delay(m, adder_tree(m, there), TRIPLE.cycles))
        return m

    def _groups(self):
        """Groups of columns that share multipliers."""
        columns, left = LANES, self.multipliers // LANES
        for group in (TRIPLE, SINGLE):
            while group.rows <= columns and group.multipliers <= left:
                columns, left = columns - group.rows, left - group.multipliers
                yield group
