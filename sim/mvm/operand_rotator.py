# amaranth: UnusedElaboratable=no
"""Testbench of hw.mvm.operand_rotator: each column is moved to the bank of its tile."""

import cocotb
import numpy as np
from amaranth.lib import data
from concord.hw.mvm.operand_buffer import operand
from concord.hw.mvm.operand_rotator import OperandRotator
from concord.sim.drivers.bench import CONFIG, assert_equal, pack, stored, unpack
from concord.sim.drivers.stream import drive_pipeline
from concord.sim.stimulus.random_values import mantissas

CONFIGURATIONS = ("wide",)  # one engine turns nothing
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "e < self.columns", "new": "e <= self.columns", "config": "wide"},
)

ENGINES = CONFIG.tile_engines


@cocotb.test()
async def every_column_meets_its_tile(dut):
    """The tile of column e is tile + e, whose bank is its address modulo the engines; banks without a column get 0."""
    rng, cycles = np.random.default_rng(cocotb.RANDOM_SEED), 1000
    fmt, shape = CONFIG.activations, data.ArrayLayout(operand(CONFIG), ENGINES)
    numbers = stored(mantissas(rng, fmt, (cycles, ENGINES, CONFIG.lanes)), fmt)
    exponents = rng.integers(0, fmt.e_max - fmt.e_min + 1, (cycles, ENGINES))
    tile, columns = rng.integers(0, CONFIG.matrix_tiles, cycles), rng.integers(1, ENGINES + 1, cycles)
    i = pack(shape, {"mantissas": numbers, "exponent": exponents})
    got = unpack(shape, (await drive_pipeline(dut, {"i": i, "tile": tile, "columns": columns}, ["o"],
                                    OperandRotator(CONFIG).latency))["o"])
    for cycle in range(cycles):
        idle = set(range(ENGINES))
        for column in range(columns[cycle]):
            bank = (tile[cycle] + column) % ENGINES
            given = {"cycle": cycle, "tile": tile[cycle], "columns": columns[cycle], "column": column, "bank": bank}
            assert_equal("mantissas", got["mantissas"][cycle, bank], numbers[cycle, column], **given)
            assert_equal("exponent", got["exponent"][cycle, bank], exponents[cycle, column], **given)
            idle.discard(bank)
        idle_lanes = got["mantissas"][cycle, list(idle)]
        assert_equal("mantissas of idle banks", idle_lanes, np.zeros_like(idle_lanes), cycle=cycle, tile=tile[cycle],
                     columns=columns[cycle])
