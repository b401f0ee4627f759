"""Rotates the operands of a step to the tile engines, so that each column meets its tile."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import low_high
from concord.hw.lib.pipeline import delay
from concord.hw.mvm.operand_buffer import operand
from concord.spec.machine.config import Config


class OperandRotator(wiring.Component):
    """Computes o[j] = i[(j - tile) mod tile_engines], or zero mantissas where the step has no such column.

    Args:
        config: The machine.

    Members:
        i: In. Operands, by column of the step.
        tile: In. Tile of the first column.
        columns: In. Number of columns of the step.
        o: Out. Operands, by bank of the register file.

    Timing:
        Outputs follow the inputs by `latency` cycles, which is 0 with one engine.
    """

    def __init__(self, config: Config):
        self.config = config
        shape = data.ArrayLayout(operand(config), config.tile_engines)
        super().__init__({
            "i": In(shape), "tile": In(range(config.matrix_tiles)), "columns": In(range(config.tile_engines + 1)),
            "o": Out(shape)})

    @property
    def latency(self) -> int:
        """Cycles from input to output."""
        return int(self.config.tile_engines > 1)

    def elaborate(self, platform):
        m = Module()
        engines = self.config.tile_engines
        bank, _ = low_high(self.tile, engines)
        turned = [Cat(Mux(e < self.columns, item.mantissas.as_value(), 0), item.exponent)
                  for e, item in enumerate(self.i)] if engines > 1 else [self.i[0].as_value()]
        for bit in range(len(bank)):
            turned = [Mux(bank[bit], turned[j - (1 << bit)], turned[j]) for j in range(engines)]
        m.d.comb += Value.cast(self.o).eq(Cat(delay(m, value, self.latency) for value in turned))
        return m
