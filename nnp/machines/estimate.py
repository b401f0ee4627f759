"""Estimates the LUT4, multipliers and block RAM of a machine on an ECP5, before any synthesis.

Multipliers and block RAM follow from the configuration. LUT4 are a sum over units: each unit has a formula, features of
the configuration times coefficients, and the coefficients are fitted by least squares to units that were synthesised
(`measured.csv`). `nnp presets --errors` prints estimates beside measurements.
"""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from concord.hw.mvm import bit_planes
from concord.hw.mvm.shared_products import groups
from concord.hw.mvm.tile_engine import TileEngine
from concord.nnp.machines.block_ram import memories
from concord.nnp.machines.measured import read_measured
from concord.spec.config import Config

RESOURCES = ("LUT4", "DSP", "block RAM")
DEVICE = {"LUT4": 84_000, "DSP": 156, "block RAM": 208}  #: Cells of an LFE5U-85F.
MACHINE = "nnp"  #: The unit that is the whole machine.

Features = Callable[[Config], Sequence[float]]


def _tile_engine(config: Config) -> Sequence[float]:
    """Bits of products in lookup tables, of factors in multipliers, and of the shifters that align the sums."""
    engine, bits = TileEngine(config), config.weights.bits * config.activations.bits
    shared = sum(group.rows for group in _groups(config))
    return ((config.native_dim - shared) * config.lanes * bits, shared * config.lanes,
            config.native_dim * engine.width * engine.shift_bits)


def _per_lane(config: Config) -> Sequence[float]:
    return 1, config.mfu_lanes


#: Features of each unit, without the memories that `block_ram` counts. A feature of 1 has a constant as coefficient.
UNITS: dict[str, Features] = {
    "tile_engine": _tile_engine,
    "accumulator": lambda c: (c.native_dim * c.sum_bits, c.native_dim * c.sum_bits * c.count_overflows),
    "converter": lambda c: (c.mfu_lanes * c.sum_bits, c.mfu_lanes, c.mfu_lanes * c.count_overflows),
    "quantizer": _per_lane,
    "matrix_loader": _per_lane,
    "entry_writer": _per_lane,
    "vector_memories": _per_lane,
    "mfu_pipeline": lambda c: (c.mfu_lanes,),
    "copy": _per_lane,
    "writeback": _per_lane,
    "operand_fetch": _per_lane,
    "gather": _per_lane,
    "issue": _per_lane,
    "pixel_pipeline": _per_lane,
    "interlock": lambda c: (1, c.tile_engines, bool(c.vector_rf)),
    "decoder": lambda c: (1, bool(c.vector_rf)),
    "counters": lambda c: (1,),
    "message_input": lambda c: (1, c.message_bytes),
    "message_output": lambda c: (1, c.message_bytes),
    "lazy_update": _per_lane,
    "others": lambda c: (1, c.mfu_lanes, c.count_overflows * c.tile_engines * c.native_dim * c.lanes),
}
#: Attribute of the configuration that a machine must have to hold a unit.
NEEDS = dict.fromkeys(("entry_writer", "gather", "pixel_pipeline"), "vector_rf") | {"lazy_update": "lazy_update"}


def estimate(config: Config) -> dict[str, int]:
    """Estimated number of cells of a machine by the name of the resource: those of all units, each on its own."""
    rams = list(memories(config))
    lut4 = sum(ram.lut4 for ram in rams) + sum(
        unit_lut4(name, config) for name in UNITS if getattr(config, NEEDS.get(name, "native_dim")))
    block_ram = sum(ram.block_ram for ram in rams)
    return {"LUT4": round(lut4 / 100) * 100, "DSP": multipliers(config), "block RAM": block_ram}


def unit_lut4(name: str, config: Config) -> int:
    """Estimated number of LUT4 of a unit's logic, of all instances together."""
    count = config.tile_engines if name == "tile_engine" else 1
    return round(count * float(np.dot(_coefficients()[name], UNITS[name](config))))


def multipliers(config: Config) -> int:
    """Number of multipliers of 18 x 18 bits: of tile engines, multi-function units, and the count of overflows."""
    engines = config.tile_engines * config.lanes
    counted = engines * config.native_dim * config.count_overflows
    return engines * sum(group.multipliers for group in _groups(config)) + 4 * config.mfu_lanes + counted + 1


def _groups(config: Config):
    """Rows of a tile engine that share multipliers."""
    return list(groups(config, bit_planes.cycles(config.weights.bits)))


@cache
def _coefficients() -> dict[str, np.ndarray]:
    """Coefficients of the features of each unit, fitted to what was measured; none is negative."""
    found = {}
    for name, features in UNITS.items():
        rows = [row for row in read_measured() if row.unit == name]
        logic = [row.cells["LUT4"] - sum(ram.lut4 for ram in memories(row.config) if ram.unit == name) for row in rows]
        found[name] = _least_squares(np.array([features(row.config) for row in rows], float), np.array(logic, float))
    return found


def _least_squares(features: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Coefficients of the smallest relative errors, none of them negative: those that would be are left out."""
    weighted = features / values[:, None]
    used = np.flatnonzero(features.any(0))
    while len(used):
        solution = np.linalg.lstsq(weighted[:, used], np.ones(len(values)), rcond=None)[0]
        if (solution >= 0).all():
            break
        used = np.delete(used, solution.argmin())
    found = np.zeros(features.shape[1])
    found[used] = solution
    return found
