"""Gates, multipliers and memories of the machine or one unit on an ECP5: `nox -s synth -- --preset tiny --unit mvm`."""

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from concord.benchmarks.routing import DEVICE as CHIP
from concord.benchmarks.routing import tool_folder
from concord.handover.place import CELLS, NEXTPNR, packed, tool
from concord.hw import netlist
from concord.hw.lib.ecp5 import Ecp5
from concord.hw.mvm.tile_engine import TileEngine
from concord.hw.units import component, in_trainers
from concord.hw.verilog import YOSYS, verilog
from concord.machines.estimate import DEVICE, MACHINE, estimate
from concord.nnp.lib.errors import sentences
from concord.spec.machine.config import Config, preset
from concord.spec.machine.machine_file import find_config, machine_name
from concord.spec.numbers.formats import Format
from concord.spec.trainer.config import TrainerConfig
from rich.console import Console
from rich.table import Table

#: Costs of cells. A carry cell takes two LUT4; distributed RAM of sixteen words of four bits takes four.
COSTS = {
    "LUT4": {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 4},
    "FF": {"TRELLIS_FF": 1},
    "DSP": {"MULT18X18D": 1},
    "block RAM": {"DP16KD": 1, "PDPW16KD": 1},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class YosysScript:
    """The commands for Yosys.

    Attributes:
        flatten: Whether Yosys optimises across the borders of units.
        wide:    Whether Yosys joins LUT4s by the multiplexers of their slices into functions of up to seven inputs.
                 Paths are then shorter, and take up to a quarter more LUT4.
        purge:   Whether wires that nothing uses lose their names before they are mapped to LUT4. Yosys fails on the
                 shifts of floats without it.
    """

    flatten: bool
    wide: bool = False
    purge: bool = False

    @property
    def text(self) -> str:
        """The commands, from top.v to cells.json. Names are hidden, as ABC cannot handle a name that occurs twice."""
        mapped = f"synth_ecp5 -top top{'' if self.flatten else ' -noflatten'}{'' if self.wide else ' -nowidelut'}"
        parts = [f"{mapped} -run :map_luts", "opt_clean -purge", f"{mapped} -run map_luts:"] if self.purge else [mapped]
        return "; ".join([
            "read_verilog top.v", "hierarchy -top top", "rename -hide", "proc", "opt_expr", "opt_clean", "wreduce",
            *parts, "tee -q -o cells.json stat -json"])


def synthesise(text: str, script: YosysScript) -> dict[str, Counter]:
    """Cells of each module of Verilog `text`, by the module's name, of which the top module `top` has none.

    Raises:
        RuntimeError: Yosys fails; the message ends with its output.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "top.v").write_text(text)
        done = subprocess.run([YOSYS, "-q", "-l", "log", "-p", script.text], cwd=folder, check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if done.returncode:
            raise RuntimeError(f"yosys failed:\n{Path(folder, 'log').read_text(errors='replace')[-2000:]}")
        modules = json.loads(Path(folder, "cells.json").read_text())["modules"]
    return {name.removeprefix("\\top").removeprefix("."): Counter(module["num_cells_by_type"])
            for name, module in modules.items()}


def costs(cells: Counter) -> dict[str, int]:
    """The costs of cells, by the columns of the table."""
    return {name: sum(cells[kind] * price for kind, price in prices.items()) for name, prices in COSTS.items()}


def units(modules: dict[str, Counter], top: str, depth: int) -> dict[str, Counter]:
    """Cells of each unit, its parts included, down to `depth` levels below `top`; a unit comes before its parts.

    Amaranth names the module of each instance by its path.
    """
    found = {}
    for name, cells in sorted(modules.items()):
        names = [top, *filter(None, name.split("$")[0].split("."))]
        for length in range(1, min(len(names), depth + 1) + 1):
            found.setdefault(".".join(names[:length]), Counter()).update(cells)
    return dict(sorted(found.items()))


def table(rows: dict[str, Counter], title: str) -> Table:
    """A table of the costs of units, indented by their level."""
    result = Table("unit", *(f"{name}" for name in COSTS), title=title)
    for name, cells in rows.items():
        path = name.split(".")
        result.add_row("  " * (len(path) - 1) + path[-1], *(f"{cost:,}" for cost in costs(cells).values()))
    return result


SHARED, ALONE = {"e_min": -11, "e_max": 4}, {"e_min": 4, "e_max": 4}  #: Exponents of blocks; of long floats.
EIGHT, FOUR = (Format(bits=bits, symmetric=True, **SHARED) for bits in (8, 4))
E2M0, E3M0, E4M0, E2M1, E3M2 = (Format.floating(*each, **SHARED) for each in ((2, 0), (3, 0), (4, 0), (2, 1), (3, 2)))
E4M3, E5M2 = (Format.floating(*each, **ALONE) for each in ((4, 3), (5, 2)))
#: Weights and inputs of tile engines that are compared.
PAIRS = ((EIGHT, EIGHT), (FOUR, EIGHT), (FOUR, FOUR), (E2M0, EIGHT), (E3M0, EIGHT), (E4M0, EIGHT), (E3M0, E3M0),
         (E2M1, EIGHT), (E2M1, E2M1), (E3M2, E3M2), (E4M3, EIGHT), (E4M3, E4M3), (E5M2, EIGHT), (E5M2, E3M2))


def engine(weights: Format, inputs: Format, lanes: int) -> Config:
    """A machine whose tile engine has `lanes` lanes and as many rows."""
    base = preset("vision")
    fraction = weights.bits - 1 + inputs.bits - 1 - weights.e_min - inputs.e_min  # the least that drops no bit
    return replace(base, native_dim=lanes, lanes=lanes, mfu_lanes=min(base.mfu_lanes, lanes), multipliers=0,
                   weights=weights, activations=inputs, acc_int=13, acc_frac=fraction)


def report(console: Console, lanes: int = 8):
    """Synthesise the engines of `lanes` lanes and as many rows, and print a table of their cells."""
    began = time.monotonic()
    table = Table("weights", "inputs", "bits stored", "LUT4", "LUT4 of a product", "FF",
                  title=f"Tile engine of {lanes} x {lanes} products on an ECP5")
    for weights, inputs in PAIRS:
        text = verilog(TileEngine(engine(weights, inputs, lanes)), "top", Ecp5())
        cells = costs(sum(synthesise(text, YosysScript(flatten=True, purge=True)).values(), Counter()))
        table.add_row(weights.element, inputs.element, f"{weights.code_bits}, {inputs.code_bits}",
                      f"{cells['LUT4']:,}", f"{cells['LUT4'] / lanes**2:.1f}", f"{cells['FF']:,}")
    console.print(table)
    console.print(f"{time.monotonic() - began:.0f} s")


_WORDS = TrainerConfig().words  # of the default trainer


def after_packing(text: str) -> dict[str, int]:
    """Cells of Verilog that is mapped as for a bitstream, by their titles, after nextpnr has packed them.

    Raises:
        RuntimeError: a tool fails, or is not installed; the message says how to install it.
    """
    with tool_folder() as folder:
        cells = packed(netlist.synthesise(text, folder), [*CHIP, "--lpf-allow-unconstrained"])
    return {title: cells[kind] for kind, title in CELLS.items()}


@sentences
def main(
    preset_name: Annotated[str, typer.Option(
        "--preset", "--config", metavar="MACHINE", help="Name of a preset, or TOML file of a machine.")] = "ulx3s",
    unit: Annotated[str, typer.Option(help="Name of the unit, which is that of its file in hw/.")] = "nnp",
    words: Annotated[int, typer.Option(help="Words on the chip of a trainer, for a unit of trainers.")] = _WORDS,
    depth: Annotated[int, typer.Option(help="Number of levels of units in the table.")] = 2,
    parts: Annotated[bool, typer.Option(help="Synthesise each unit on its own, for a table of all of them.")] = True,
    flat: Annotated[bool, typer.Option(help="Also synthesise the flattened unit.")] = True,
    pack: Annotated[bool, typer.Option("--pack", help="Also map it as `nnp build` does, and pack its cells.")] = False,
) -> None:
    """Synthesise a unit, and print tables of its cells."""
    console = Console(width=100 if not sys.stdout.isatty() else None)
    if pack:
        tool(NEXTPNR)  # which is missing now, and not after minutes of synthesis
    config, trainer = find_config(preset_name), TrainerConfig(words=words)
    config.require_hardware()
    text = verilog(component(unit, config, trainer), "top", Ecp5())
    purge = config.weights.precision > 0 or config.activations.precision > 0
    began = time.monotonic()
    machine = f"a trainer of {words:,} words" if unit in in_trainers() else machine_name(preset_name)
    if parts:
        console.print(table(units(synthesise(text, YosysScript(flatten=False, purge=purge)), unit, depth),
                            f"{unit} of {machine} on an ECP5, each unit on its own"))
    if unit == MACHINE:
        guess = estimate(config)
        console.print(f"estimated: {', '.join(f'{name} {count:,}' for name, count in guess.items())}")
    if flat:
        total = sum(synthesise(text, YosysScript(flatten=True, purge=purge)).values(), Counter())
        console.print(table({unit: total}, "Flattened"))
        for name, cost in costs(total).items():
            if name in DEVICE:
                console.print(f"{name}: {cost:,} of {DEVICE[name]:,} in an LFE5U-85F, {cost / DEVICE[name]:.0%}")
    if pack:
        cells = after_packing(text)
        console.print(f"after packing: {', '.join(f'{count:,} {title}' for title, count in cells.items())}")
    console.print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    typer.run(main)
