"""Random products, and the order of their rows of tiles and steps, written as loops."""

from collections.abc import Iterator

import numpy as np
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
                places = {} if product["from_entries"] else {"step": first // engines, "needed": needed}
                yield {"tile": product["tile"] + r * product["columns"] + first, **places, "columns": needed - first,
                       "from_entries": product["from_entries"], "last": last, "iteration": end,
                       "product": end and iteration == product["iterations"] - 1, "integer": product["integer"],
                       "words": result["words"], "rows": result["rows"]}
