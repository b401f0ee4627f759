"""Random products, the order of their rows of tiles and steps, written as loops, and how VectorRf is read for them.

Random chains that write VectorRf are here, too.
"""

from collections.abc import Iterator

import numpy as np
from concord.golden.mvm.quantizer import split
from concord.sim.stimulus.entry_chains import columns
from concord.sim.stimulus.random_values import random_words
from concord.spec.isa.chain import Chain, Registers
from concord.spec.isa.instructions import Instruction, Op
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config


def random_product(config: Config, rng: np.random.Generator) -> dict[str, int]:
    """Fields of `hw.lib.payloads.Product` for a random product within the machine's limits, mostly a small one."""
    n, from_entries = config.native_dim, int(config.vector_rf > 0 and rng.integers(2))
    most = config.matrix_tiles if from_entries else min(config.operand_columns, config.matrix_tiles)
    columns = int(rng.integers(1, (most if rng.random() < 0.2 else min(most, 2 * config.tile_engines + 1)) + 1))
    row_tiles = int(rng.integers(1, min(config.accumulator_rows // n, config.matrix_tiles // columns, 4) + 1))
    rows = row_tiles * n - int(rng.integers(n))
    words = config.words_of(rows)
    integer, bias = (int(flag) for flag in rng.integers(0, 2, 2))
    bias &= integer & (words <= config.bias_words)
    return {
        "tile": int(rng.integers(config.matrix_tiles - row_tiles * columns + 1)), "columns": columns,
        "row_tiles": row_tiles, "words": words, "rows": rows, "iterations": int(rng.integers(1, 4)),
        "from_entries": from_entries, "integer": integer, "unsigned": int(rng.integers(2)),
        "out_scale": int(rng.integers(-32, 32)), "bias": bias,
        "bias_address": int(rng.integers(config.bias_words - words + 1)) if bias else 0}


def row_tiles(config: Config, product: dict[str, int]) -> Iterator[dict[str, int]]:
    """The rows of tiles of all iterations, as `hw.mvm.row_tiles.row_tile`; without a bias, its address is 0."""
    for _ in range(product["iterations"]):
        for r in range(product["row_tiles"]):
            yield {"words": min(product["words"] - r * config.vector_words, config.vector_words),
                   "rows": min(product["rows"] - r * config.native_dim, config.native_dim),
                   "integer": product["integer"], "out_scale": product["out_scale"], "bias": product["bias"],
                   "bias_address": product["bias"] * (product["bias_address"] + r * config.vector_words)}


def steps(config: Config, product: dict[str, int]) -> Iterator[dict[str, int]]:
    """The steps of side-by-side tiles, as `hw.mvm.row_tiles.column_step`; from VectorRf without `step` and `needed`."""
    results, engines = row_tiles(config, product), config.tile_engines
    for iteration in range(product["iterations"]):
        for r in range(product["row_tiles"]):
            result = next(results)
            for first in range(0, product["columns"], engines):
                needed = min(first + engines, product["columns"])
                last = needed == product["columns"]
                end = last and r == product["row_tiles"] - 1
                marks = {} if product["from_entries"] else {"step": first // engines, "needed": needed}
                yield {"tile": product["tile"] + r * product["columns"] + first, **marks, "columns": needed - first,
                       "from_entries": product["from_entries"], "last": last, "iteration": end,
                       "product": end and iteration == product["iterations"] - 1, "integer": product["integer"],
                       "words": result["words"], "rows": result["rows"]}


def random_entry_product(config: Config, rng: np.random.Generator) -> Chain:
    """A chain with a product from VectorRf within the machine's limits: windows, runs of columns, moving sources."""
    for _ in range(10000):
        found = _any_entry_product(config, rng)
        if (found.tiles.stop <= config.matrix_tiles and found.source_span().stop <= config.vector_rf
                and found.registers.rows <= config.accumulator_rows):
            return found
    raise ValueError(f"{config.vector_rf} entries are too few for windows")


def _any_entry_product(config: Config, rng: np.random.Generator) -> Chain:
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
    return entry_product(config, int(rng.integers(config.vector_rf)), int(rng.integers(config.matrix_tiles)),
                 window=bool(window), integer=bool(rng.integers(2)), inc=bool(inc), registers=registers)


def entry_product(config: Config, address: int, tile: int, *, window: bool, integer: bool, inc: bool,
          registers: Registers) -> Chain:
    """The chain `v_rd VectorRf, address`, `mv_mul tile`, `v_wr MvmQ` under these registers."""
    instructions = (Instruction(op=Op.V_RD, mem=Mem.VECTOR_RF, a=address, inc=inc),
                    Instruction(op=Op.MV_MUL, a=tile, integer=integer, window=window),
                    Instruction(op=Op.V_WR, mem=Mem.MVM_Q))
    return Chain.resolve(config, 0, instructions, registers)


def entry_columns(chain: Chain, older: int) -> dict:
    """The `hw.lib.jobs.column_job` of a chain."""
    registers, inc = chain.registers, chain.source.inc
    window = {"vectors": registers.columns, "x": 1, "y": 1, "step": 0, "pitch": 0, "group": 0}
    if chain.windowed:
        window = {name: getattr(registers, f"window_{name}") for name in window}
    return {"lo": chain.source.a, "stride_x": inc * registers.stride_x, "stride_y": inc * registers.stride_y,
            "iterations": registers.iterations, "iterations_x": registers.iterations_x, "row_tiles": chain.row_tiles,
            "columns": registers.columns, "window": window, "older": older}


def entry_steps(config: Config, chain: Chain) -> Iterator[list[int]]:
    """Addresses of the columns of each step."""
    for row_tile in columns(chain).reshape(-1, chain.registers.columns).tolist():
        for first in range(0, len(row_tile), config.tile_engines):
            yield row_tile[first:first + config.tile_engines]


def duration(config: Config, step: list[int]) -> int:
    """Cycles that the reads of a step take: the number of its columns in the fullest bank."""
    return int(np.bincount(np.array(step) % config.tile_engines).max())


class EntryWrites:
    """A random chain that writes VectorRf.

    Args:
        lines: Most lines of iterations.
        wild:  Whether its words hold any bit pattern.

    Attributes:
        job:       Fields of `hw.lib.jobs.entry_job`.
        bits:      Words of all iterations, uint16[words, M].
        blocks:    Numbers of the entries that the words make, uint16[iterations, entries, N].
        addresses: Addresses of these entries, [iterations, entries].
    """

    def __init__(self, config: Config, rng: np.random.Generator, *, lines: int, wild: bool):
        lines, columns = int(rng.integers(1, lines + 1)), int(rng.integers(1, 4))
        self.words = int(rng.integers(1, 2 * config.vector_words + 2))
        self.iterations, entries = lines * columns, -(-self.words // config.vector_words)
        inc, integer = (bool(flag) for flag in rng.integers(0, 2, 2))
        self.mode = {"integer": integer, "unsigned": bool(integer and rng.random() < 0.5)}
        stride, skip = (int(rng.choice([0, 1, entries, entries + 1])) for _ in range(2))
        offsets = inc * np.array([t * stride + t // columns * skip for t in range(self.iterations)])
        self.rising = bool((np.diff(offsets) >= entries).all())
        self.lo = int(rng.integers(max(1, config.vector_rf - offsets[-1] - entries)))
        self.hi = int(self.lo + offsets[-1] + entries)
        self.job = {"write": {"valid": 1, "lo": self.lo, "hi": self.hi, "inc": inc, "rising": self.rising,
                              "stride": stride, "skip": skip, "mode": self.mode},
                    "words": self.words, "iterations": self.iterations, "iterations_x": columns}
        self.bits = random_words(config, rng, self.iterations * self.words, wild=wild)
        self.blocks = split(self.bits.reshape(self.iterations, -1), config.native_dim)
        self.addresses = self.lo + offsets[:, None] + np.arange(entries)
