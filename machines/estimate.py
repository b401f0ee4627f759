"""Estimates the LUT4, multipliers and block RAM of a machine on an ECP5, before any synthesis.

Multipliers and block RAM follow from the configuration. LUT4 are a sum over units: each unit has a formula, features of
the configuration times coefficients, and the coefficients are fitted by least squares to units that were synthesised
(`measured.csv`). `nnp presets --errors` prints estimates beside measurements.
"""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from concord.hw.lib.payloads import address_bits
from concord.hw.mvm.dot_products import groups, plane_cycles
from concord.hw.mvm.tile_engine import shift_bits
from concord.machines.block_ram import memories
from concord.spec.machine.config import Config
from concord.spec.machine.machine_file import BASE, config_from_text

RESOURCES = ("LUT4", "DSP", "block RAM")
DEVICE = {"LUT4": 83_640, "DSP": 156, "block RAM": 208}  #: Cells of an LFE5U-85F.
MACHINE = "nnp"  #: The unit that is the whole machine.
#: Units that were synthesised (`nox -s synth`), to which the estimate is fitted.
PATH = Path(__file__).with_name("measured.csv")

Features = Callable[[Config], Sequence[float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """The cells of one unit.

    Attributes:
        unit:    Name of the unit, or "nnp" for the whole machine.
        machine: Name of the preset, and what was changed in it, as TOML.
        config:  The machine.
        cells:   Number of cells by the name of the resource.
    """

    unit: str
    machine: str
    config: Config
    cells: dict[str, int]


def read_measured() -> list[Measured]:
    """All units that were synthesised, each on its own, without optimisation across the borders of units."""
    found = []
    with PATH.open(newline="") as file:
        for row in csv.DictReader(file):
            text = f'{BASE} = "{row["preset"]}"\n' + row["changes"].replace("; ", "\n")
            machine = " ".join(filter(None, (row["preset"], row["changes"])))
            cells = {name: int(row[name]) for name in ("LUT4", "DSP", "block RAM")}
            found.append(Measured(unit=row["unit"], machine=machine, config=config_from_text(text), cells=cells))
    return found


def _tile_engine(config: Config) -> Sequence[float]:
    """Bits of the adders of planes in lookup tables, adders after multipliers, bits of shifters that align sums.

    Floats have products of significands, shifters and one tree of adders instead of the planes.
    """
    weights, inputs, adders = config.weights.bits, config.activations.bits, config.lanes - 1
    align = config.native_dim * (weights + inputs) * shift_bits(config)
    floats = [fmt for fmt in (config.weights, config.activations) if fmt.precision]
    if floats:
        short = min(fmt.precision for fmt in floats)
        long = sum(fmt.precision or fmt.bits for fmt in (config.weights, config.activations)) - short
        product, whole = long + short * (short > 1), weights + inputs - len(floats)
        levels = max(fmt.field_bits for fmt in floats) + len(floats) - 1
        shifters = sum(min(whole, product + (2 << k) - 1) for k in range(levels))
        return config.native_dim * (config.lanes * ((short - 1) * long + shifters) + adders * whole), 0, align
    planes = (config.native_dim - sum(group.rows for group in _groups(config))) * weights
    return (planes * adders * (inputs + 2), sum(group.multipliers for group in _groups(config)) * adders,
            align)


def _accumulator(config: Config) -> Sequence[float]:
    """Bits of sums, of their selection word by word, and of what counts their overflows."""
    bits = config.native_dim * config.sum_bits
    return bits, bits * (config.vector_words - 1).bit_length(), bits * config.count_overflows


def _converter(config: Config) -> Sequence[float]:
    """Lanes, bits of their sums, and of what counts their overflows."""
    bits = config.mfu_lanes * config.sum_bits
    return config.mfu_lanes, bits, bits * config.count_overflows


def _lanes(config: Config) -> Sequence[float]:
    """A constant, and lanes of words."""
    return 1, config.mfu_lanes


def _words(config: Config) -> Sequence[float]:
    """Lanes of words, and bits of addresses."""
    return config.mfu_lanes, address_bits(config)


#: Features of each unit, without the memories that `block_ram` counts. A feature of 1 has a constant as coefficient.
UNITS: dict[str, Features] = {
    "tile_engine": _tile_engine,
    "accumulator": _accumulator,
    "converter": _converter,
    "quantizer": _lanes,
    "matrix_loader": _words,
    "entry_writer": _words,
    "vector_memories": _words,
    "mfu_pipeline": lambda c: (c.mfu_lanes, c.mfu_lanes * c.more_functions),
    "copy": _lanes,
    "writeback": _words,
    "operand_fetch": _lanes,
    "gather": _lanes,
    "issue": _lanes,
    "pixel_pipeline": lambda c: (c.mfu_lanes,),
    "interlock": lambda c: (1, address_bits(c)),
    "decoder": lambda c: (1, bool(c.vector_rf)),
    "counters": lambda c: (1,),
    "message_input": lambda c: (1, c.message_bytes),
    "message_output": lambda c: (1, c.message_bytes),
    "lazy_update": _lanes,
    "softmax": _lanes,
    "dram_port": lambda c: (1,),
    "transfers": lambda c: (1,),
    "tile_builder": lambda c: (c.mfu_lanes,),
    "others": lambda c: (1, c.mfu_lanes, c.count_overflows * c.tile_engines * c.native_dim * c.lanes),
}
#: Attribute of the configuration that a machine must have to hold a unit.
NEEDS = dict.fromkeys(("entry_writer", "gather", "pixel_pipeline"), "vector_rf") | {
    "lazy_update": "lazy_update", "softmax": "softmax_words",
    **dict.fromkeys(("dram_port", "transfers", "tile_builder"), "dram_words")}


def estimate(config: Config, without: str = "") -> dict[str, int]:
    """Estimated number of cells of a machine by the name of the resource: those of all units, each on its own.

    Args:
        without: Machine whose measurements are left out of the fit, by its name in `measured.csv`.
    """
    rams = list(memories(config))
    lut4 = sum(ram.lut4 for ram in rams) + sum(
        unit_lut4(name, config, without) * (config.tile_engines if name == "tile_engine" else 1)
        for name in UNITS if getattr(config, NEEDS.get(name, "native_dim")))
    block_ram = sum(ram.block_ram for ram in rams)
    return {"LUT4": round(lut4 / 100) * 100, "DSP": multipliers(config), "block RAM": block_ram}


def unit_lut4(name: str, config: Config, without: str = "") -> float:
    """Estimated number of LUT4 of one instance of a unit, without its memories; `without` is that of `estimate`."""
    return float(np.dot(_coefficients(without)[name], UNITS[name](config)))


def whole_unit_lut4(name: str, config: Config, without: str = "") -> float:
    """Estimated number of LUT4 of one instance of a unit, with its memories in distributed RAM."""
    return unit_lut4(name, config, without) + sum(ram.lut4 for ram in memories(config) if ram.unit == name)


def unit_errors(row: Measured) -> tuple[float, float]:
    """Relative errors of the estimated LUT4 of a measured unit: of the fit, and of a fit without its machine."""
    fitted, foreseen = (whole_unit_lut4(row.unit, row.config, without) for without in ("", row.machine))
    return fitted / row.cells["LUT4"] - 1, foreseen / row.cells["LUT4"] - 1


def multipliers(config: Config) -> int:
    """Number of multipliers of 18 x 18 bits: of tile engines, multi-function units, softmax, count of overflows."""
    engines = config.tile_engines * config.lanes
    counted = engines * config.native_dim * config.count_overflows
    others = 4 * config.mfu_lanes + counted + 2 * bool(config.softmax_words) + 1
    return engines * sum(group.multipliers for group in _groups(config)) + others


def _groups(config: Config):
    """Rows of a tile engine that share multipliers."""
    return list(groups(config, plane_cycles(config.weights.bits)))


@cache
def _coefficients(without: str = "") -> dict[str, np.ndarray]:
    """Coefficients of the features of each unit, fitted to what was measured in other machines; none is negative."""
    found, measured = {}, read_measured()
    for name, features in UNITS.items():
        rows = [row for row in measured if row.unit == name and row.machine != without]
        logic = [row.cells["LUT4"] - sum(ram.lut4 for ram in memories(row.config) if ram.unit == name) for row in rows]
        found[name] = least_squares(np.array([features(row.config) for row in rows], float), np.array(logic, float))
    return found


def least_squares(features: np.ndarray, values: np.ndarray) -> np.ndarray:
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
