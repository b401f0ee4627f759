"""Random products from VectorRf, and the order in which they read its entries."""

from collections.abc import Iterator

import numpy as np
from concord.sim.stimulus.entry_addresses import columns
from concord.spec.isa.chain import Chain, Registers
from concord.spec.isa.instructions import Instruction, Op
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config


def random_chain(config: Config, rng: np.random.Generator) -> Chain:
    """A chain with a product from VectorRf within the machine's limits: windows, runs of columns, moving sources."""
    for _ in range(10000):
        found = _any_chain(config, rng)
        if (found.tiles.stop <= config.matrix_tiles and found.source_span().stop <= config.vector_rf
                and found.registers.rows <= config.accumulator_rows):
            return found
    raise ValueError(f"{config.vector_rf} entries are too few for windows")


def _any_chain(config: Config, rng: np.random.Generator) -> Chain:
    """A chain that may leave VectorRf or MatrixRf."""
    window, inc = rng.random(2) < (0.8, 0.7)
    vectors, x, y = (int(1 + rng.geometric(0.5) * (rng.random() < 0.7)) for _ in range(3))
    iterations_x, lines = (int(rng.integers(1, 4)) for _ in range(2))
    tiles = int(rng.integers(1, 4))
    registers = Registers(
        rows=tiles * config.native_dim - int(rng.integers(config.native_dim)),
        columns=vectors * x * y if window else int(rng.integers(1, 3 * config.tile_engines + 4)),
        iterations=iterations_x * lines, iterations_x=iterations_x, out_scale=int(rng.integers(-10, 20)),
        stride_x=int(rng.integers(0, 4)), stride_y=int(rng.integers(0, 9)), stride_out=1, window_vectors=vectors,
        window_x=x, window_y=y, window_step=int(rng.choice([0, 1, vectors, vectors + 1])),
        window_pitch=int(rng.integers(0, 8)), window_group=int(rng.integers(0, 3)))
    return chain(config, int(rng.integers(config.vector_rf)), int(rng.integers(config.matrix_tiles)),
                 window=bool(window), integer=bool(rng.integers(2)), inc=bool(inc), registers=registers)


def chain(config: Config, address: int, tile: int, *, window: bool, integer: bool, inc: bool,
          registers: Registers) -> Chain:
    """The chain `v_rd VectorRf, address`, `mv_mul tile`, `v_wr MvmQ` under these registers."""
    instructions = (Instruction(op=Op.V_RD, mem=Mem.VECTOR_RF, a=address, inc=inc),
                    Instruction(op=Op.MV_MUL, a=tile, integer=integer, window=window),
                    Instruction(op=Op.V_WR, mem=Mem.MVM_Q))
    return Chain.resolve(config, 0, instructions, registers)


def job(chain: Chain, older: int) -> dict:
    """The `hw.lib.jobs.column_job` of a chain."""
    registers, inc = chain.registers, chain.source.inc
    window = {"vectors": registers.columns, "x": 1, "y": 1, "step": 0, "pitch": 0, "group": 0}
    if chain.windowed:
        window = {name: getattr(registers, f"window_{name}") for name in window}
    return {"lo": chain.source.a, "stride_x": inc * registers.stride_x, "stride_y": inc * registers.stride_y,
            "iterations": registers.iterations, "iterations_x": registers.iterations_x, "row_tiles": chain.row_tiles,
            "columns": registers.columns, "window": window, "older": older}


def steps(config: Config, chain: Chain) -> Iterator[list[int]]:
    """Addresses of the columns of each step."""
    for row_tile in columns(chain).reshape(-1, chain.registers.columns).tolist():
        for first in range(0, len(row_tile), config.tile_engines):
            yield row_tile[first:first + config.tile_engines]


def duration(config: Config, step: list[int]) -> int:
    """Cycles that the reads of a step take: the number of its columns in the fullest bank."""
    return int(np.bincount(np.array(step) % config.tile_engines).max())
