"""Gates of a tile engine by the format of its weights: `nox -s bench_formats -- --area`.

All engines have the same lanes and rows and no hardware multipliers, so that only the weights' format differs.
"""

import time
from collections import Counter
from dataclasses import replace

from concord.benchmarks.synth import Script, costs, synthesise
from concord.hw.lib.ecp5 import Ecp5
from concord.hw.mvm.tile_engine import TileEngine
from concord.hw.verilog import verilog
from concord.spec.machine.config import Config, preset
from concord.spec.numbers.formats import Format
from rich.console import Console
from rich.table import Table

INPUT_BITS = (8,)
RANGE = {"e_min": -11, "e_max": 4}
WEIGHTS = (  #: Mantissas of 4 and 8 bits, and powers of two of 3, 4 and 5 bits.
    *(Format(bits=bits, symmetric=True, **RANGE) for bits in (4, 8)),
    *(Format.floating(field, 0, **RANGE) for field in (2, 3, 4)))


def engine(weights: Format, input_bits: int, lanes: int) -> Config:
    """A machine whose tile engine has `lanes` lanes and as many rows."""
    base, inputs = preset("vision"), Format(bits=input_bits, symmetric=True, **RANGE)
    fraction = weights.bits - 1 + inputs.bits - 1 - weights.e_min - inputs.e_min  # the least that drops no bit
    return replace(base, native_dim=lanes, lanes=lanes, mfu_lanes=min(base.mfu_lanes, lanes), multipliers=0,
                   weights=weights, activations=inputs, acc_int=13, acc_frac=fraction)


def report(console: Console, lanes: int = 8):
    """Synthesise the engines of `lanes` lanes and as many rows, and print a table of their cells."""
    began = time.monotonic()
    for bits in INPUT_BITS:
        table = Table("weights", "bits stored", "LUT4", "LUT4 of a product", "FF",
                      title=f"Tile engine of {lanes} x {lanes} products, inputs of {bits} bits, on an ECP5")
        for weights in WEIGHTS:
            text = verilog(TileEngine(engine(weights, bits, lanes)), "top", Ecp5())
            cells = costs(sum(synthesise(text, Script(flatten=True, purge=True)).values(), Counter()))
            table.add_row(weights.element, str(weights.code_bits), f"{cells['LUT4']:,}",
                          f"{cells['LUT4'] / lanes**2:.1f}", f"{cells['FF']:,}")
        console.print(table)
    console.print(f"{time.monotonic() - began:.0f} s")
