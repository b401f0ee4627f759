"""The clock of each unit of a machine, placed and routed alone for an ECP5: `nox -s clocks -- --unit interlock`.

Results are kept in build/clocks by the content of the unit, so that a session that was stopped goes on. A unit may not
be slower than 0.9 of the clock that clocks.toml, beside this file, has of it; `--record` writes that file.
"""

import hashlib
import json
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import tomli_w
import typer
from concord.benchmarks.routing import DEVICE, boxed, route
from concord.handover.place import NEXTPNR, Placed, nextpnr_version, tool
from concord.hw.netlist import Mapping
from concord.hw.units import component, holds, in_machines
from concord.lib.processes import calls
from concord.nnp.lib.errors import sentences
from concord.spec.machine.machine_file import find_config, machine_name
from rich.console import Console
from rich.table import Table

RECORD = Path(__file__).with_suffix(".toml")
KEPT = Path("build/clocks")
TARGET = 125  #: Clock in MHz that placement aims at.
WORST = 0.9  #: Least share of the recorded clock.
WHOLE = ("accelerator", "core", "nnp")  #: Components that are a whole machine, or several.


def measured(machine: str, unit: str, seed: int) -> Placed | str:
    """A unit on the device, as it was kept, or routed now; what the tool says where it fails, as on a full chip."""
    text = boxed(component(unit, find_config(machine)))
    decides = text, Mapping().recipe(), nextpnr_version(), DEVICE, TARGET, seed
    name = hashlib.sha256(repr(decides).encode()).hexdigest()[:16]
    path = KEPT / f"{unit}-{name}.json"
    if not path.exists():
        try:
            made = route(text, TARGET, seed)
        except RuntimeError as error:
            return str(error)
        KEPT.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(made)))
    return Placed(**json.loads(path.read_text()))


def recorded() -> dict[str, dict[str, float]]:
    """The recorded clocks in MHz, by machine and unit."""
    return tomllib.loads(RECORD.read_text()) if RECORD.exists() else {}


def slower(found: dict[str, float], before: dict[str, float]) -> list[str]:
    """A sentence for each unit whose clock is less than `WORST` of the recorded one."""
    return [f"{unit} reaches {clock:.1f} MHz, and reached {before[unit]:.1f}" for unit, clock in sorted(found.items())
            if clock < WORST * before.get(unit, 0)]


@sentences
def main(
    preset: Annotated[list[str] | None, typer.Option(
        "--preset", "--config", metavar="MACHINE", help="Name of a preset, or TOML file of a machine. May be repeated."
    )] = None,
    unit: Annotated[list[str] | None, typer.Option(
        help="Name of a unit. May be repeated.", show_default="all")] = None,
    seed: Annotated[int, typer.Option(help="Seed of placement.")] = 1,
    processes: Annotated[int, typer.Option("-n", help="Number of processes.")] = 2,
    record: Annotated[bool, typer.Option("--record", help="Write the clocks into the table of recorded ones.")] = False,
) -> None:
    """Route units, and print a table; the exit code is 1 if one is slower than it was recorded."""
    console = Console(width=100 if not sys.stdout.isatty() else None)
    tool(NEXTPNR)
    table, wrong = recorded(), []
    for machine in preset or ["ulx3s", "vision", "speech"]:
        config, name = find_config(machine), machine_name(machine)
        units = unit or [each for each in in_machines() if holds(config, each) and each not in WHOLE]
        rows: dict[str, Placed] = {}
        for (_, done, _), made in calls(measured, [(machine, each, seed) for each in units], processes):
            if isinstance(made, str):
                wrong.append(f"{name} {done} has no clock: {made}")
                continue
            rows[done] = made
            console.print(f"{name} {done}: {made.clock:.1f} MHz, {len(rows)} of {len(units)}", highlight=False)
        console.print(_table(name, rows, table.get(name, {})))
        found = {each: round(made.clock, 1) for each, made in rows.items()}
        wrong += slower(found, {} if record else table.get(name, {}))
        table[name] = dict(sorted((table.get(name, {}) | found).items()))
    if record:
        RECORD.write_text(tomli_w.dumps(table))
    for sentence in wrong:
        console.print(sentence, highlight=False)
    raise typer.Exit(bool(wrong))


def _table(name: str, rows: dict[str, Placed], before: dict[str, float]) -> Table:
    """A table of units, the slowest first."""
    made = Table("unit", "MHz", "recorded", "logic, wire: ns", "COMB", "FF", "MULT18", "DP16KD",
                 title=f"units of {name} alone, LFE5U-85F, speed grade 6, one seed", title_justify="left")
    for unit, found in sorted(rows.items(), key=lambda row: row[1].clock):
        cells = (f"{found.cells.get(kind, 0):,}" for kind in ("TRELLIS_COMB", "TRELLIS_FF", "MULT18X18D", "DP16KD"))
        made.add_row(unit, f"{found.clock:.1f}", f"{before[unit]:.1f}" if unit in before else "",
                     f"{found.logic:.1f}, {found.wire:.1f}", *cells)
    return made


if __name__ == "__main__":
    typer.run(main)
