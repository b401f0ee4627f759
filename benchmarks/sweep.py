"""Machines of many shapes on an ECP5: cells, clocks and products a second: `nox -s sweep -- -n 1 --record`.

Machines differ in bits of elements, rows, lanes, tile engines, lanes of words and entries of VectorRf. Each is
synthesised with its serial port for the ULX3S and packed by nextpnr; some are routed. What has ended is kept in
build/sweep, so that a session that was stopped goes on, here or on a cluster (docs/cluster.md). `--record` writes
machines/swept.csv, to which `machines.packing` fits its estimates, and the picture docs/sweep.svg.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import matplotlib
import typer
from concord.handover import bitstream
from concord.handover.place import CELLS, nextpnr_version, packed
from concord.hw.boards.board import find_board
from concord.lib.files import write
from concord.lib.processes import calls
from concord.machines.packing import Packing, Swept, errors, fit, write_swept
from concord.nnp.lib.errors import sentences
from concord.nnp.lib.options import Scheduler
from concord.spec.machine.config import Config
from matplotlib import pyplot as plt
from rich.console import Console
from rich.table import Table

matplotlib.use("Agg")
KEPT, FOLDER = Path("build/sweep"), Path("build/boards")
PICTURE = Path("docs/sweep.svg")
BASE = "ulx3s"  #: Preset on which all machines are based.
BOARD, TARGET = "ulx3s", 100  #: Board, and clock in MHz that placement aims at.


def shape(bits: int, rows: int, lanes: int, *, engines: int = 1, multipliers: int, words: int = 2,
          entries: int = 512) -> str:
    """What a machine changes in the preset `BASE`, as TOML on one line.

    Args:
        bits:        Bits of weights and inputs.
        rows, lanes: Rows of a tile, and lanes of each.
        engines:     Number of tile engines.
        multipliers: Largest number of multipliers of each.
        words:       Lanes of words.
        entries:     Entries of VectorRf.
    """
    fraction = 2 * (bits - 1) + 12  # of products, exactly
    return "; ".join([
        f"native_dim = {rows}", f"lanes = {lanes}", f"tile_engines = {engines}", f"multipliers = {multipliers}",
        f"mfu_lanes = {words}", f"vector_rf = {entries}", f"acc_frac = {fraction}",
        f"weights = {{ bits = {bits} }}", f"activations = {{ bits = {bits} }}"])


#: Machines that are routed.
ROUTED = (
    shape(4, 4, 4, multipliers=8), shape(4, 8, 8, multipliers=16), shape(8, 8, 8, multipliers=16),
    shape(4, 16, 8, multipliers=32), shape(6, 8, 8, multipliers=16), shape(4, 8, 8, engines=2, multipliers=16),
    shape(4, 16, 16, multipliers=48), shape(8, 16, 8, multipliers=32))
MACHINES = (
    *ROUTED,
    *(shape(bits, 8, 8, multipliers=16) for bits in (3, 5)),
    *(shape(bits, 16, 16, multipliers=48) for bits in (3, 5, 6, 8)),
    shape(8, 8, 8, engines=2, multipliers=16), shape(4, 16, 16, engines=2, multipliers=48),
    shape(8, 16, 16, engines=2, multipliers=64), shape(8, 4, 4, multipliers=8),
    *(shape(4, rows, lanes, multipliers=64) for rows, lanes in ((32, 8), (32, 16))),
    shape(8, 32, 8, multipliers=64),
    *(shape(bits, 16, 8, multipliers=32) for bits in (3, 5, 6)),
    *(shape(bits, 16, 16, multipliers=48, words=words) for bits in (4, 8) for words in (4, 8)),
    *(shape(bits, 16, 16, multipliers=48, entries=entries) for bits in (4, 8) for entries in (0, 2048)),
    *(shape(bits, 8, 8, multipliers=16, entries=0) for bits in (4, 8)),
    *(shape(bits, 16, 16, multipliers=count) for bits in (4, 8) for count in (0, 96)),
    shape(4, 8, 8, multipliers=16, words=4), shape(4, 8, 8, multipliers=16, entries=2048),
    shape(8, 16, 16, multipliers=128, words=8, entries=2048), shape(4, 32, 32, multipliers=128, words=4, entries=1024))


def measured(changes: str, kept: dict[str, dict]) -> tuple[str, Swept]:
    """The cells of a machine, and its clock if it is one of `ROUTED`, as they were kept, or made now.

    Args:
        changes: What the machine changes in `BASE`.
        kept:    All that is kept, by the name of the design and the version of nextpnr.

    Returns:
        Such a name, and what was found.

    Raises:
        RuntimeError: a tool fails, or is not installed.
    """
    made = bitstream.design(Swept(preset=BASE, changes=changes).config, find_board(BOARD), TARGET, FOLDER)
    name = f"{made.folder.name}-{nextpnr_version()}"
    if name in kept:
        return name, Swept(**kept[name])

    def say(doing: str) -> None:
        print(f"{changes}: {doing}", file=sys.stderr, flush=True)

    there = (made.folder / "top.json").exists()
    netlist = bitstream.netlist(made, say)
    if changes in ROUTED:
        say("place and route")
        placed = bitstream.placed(made, 1)
        cells, mhz = placed.cells, round(placed.clock, 1)
    else:
        cells, mhz = packed(netlist, [*made.board.chip, "--lpf", "top.lpf"]), None
        if not there:  # nobody else has made it, and all of them would take gigabytes
            netlist.unlink()
    return name, Swept(
        preset=BASE, changes=changes, cells={title: cells[kind] for kind, title in CELLS.items()}, mhz=mhz)


@sentences
def main(
    count: Annotated[int, typer.Option(min=1, help="Number of machines, from the first on.")] = len(MACHINES),
    processes: Annotated[int, typer.Option("-n", min=1, help="Number of machines at a time.")] = 2,
    scheduler: Scheduler = "",
    record: Annotated[bool, typer.Option(
        "--record", help="Write machines/swept.csv and the picture, instead of those that are there.")] = False,
) -> None:
    """Synthesise, pack and route machines, and print a table of them."""
    console = Console(width=130 if not sys.stdout.isatty() else None)
    chosen, rows = MACHINES[:count], {}
    if record and len([changes for changes in chosen if changes in ROUTED]) < 3:
        raise typer.BadParameter("--record fits clocks, and needs three routed machines at least: --count 3")
    console.print(f"machines: {len(chosen)}; each takes minutes, and more where it is routed")
    kept = {path.stem: json.loads(path.read_text()) for path in KEPT.glob("*.json")}
    jobs = [(changes, kept) for changes in chosen]
    for (changes, _), (name, row) in calls(measured, jobs, processes, scheduler=scheduler):
        rows[changes] = row
        write(KEPT / f"{name}.json", json.dumps(asdict(row)))
        console.print(f"{len(rows)} of {len(chosen)}: {changes}: {row.cells['COMB']:,} COMB"
                      + (f", {row.mhz:.1f} MHz" if row.mhz else ""), highlight=False, markup=False, soft_wrap=True)
    found = [rows[changes] for changes in chosen]
    console.print(table(found))
    if record:
        write_swept(found)
        with matplotlib.rc_context({"svg.hashsalt": "concord"}):
            picture(found, fit(found), PICTURE)
        cells, clocks = (max(map(abs, each)) for each in errors(found))
        console.print(f"largest error of an estimate for a machine that is left out of the fit: COMB {cells:.0%}, "
                      f"clock {clocks:.0%}; {PICTURE}")


def table(rows: list[Swept]) -> Table:
    """A table of machines, the smallest first."""
    made = Table("bits", "rows x lanes x engines", "words", "VectorRf", *CELLS.values(), "MHz", "GOPS",
                 title=f"machines on {BOARD}, aimed at {TARGET} MHz, one seed", title_justify="left")
    for row in sorted(rows, key=lambda row: row.cells["COMB"]):
        config = row.config
        made.add_row(str(config.weights.bits), f"{config.native_dim} x {config.lanes} x {config.tile_engines}",
                     str(config.mfu_lanes), f"{config.vector_rf:,}",
                     *(f"{row.cells[kind]:,}" for kind in CELLS.values()),
                     *((f"{row.mhz:.1f}", f"{gops(config, row.mhz):.1f}") if row.mhz else ("", "")))
    return made


def gops(config: Config, mhz: float) -> float:
    """Billions of operations a second, two for each product."""
    return 2 * config.products * mhz / 1000


def picture(rows: list[Swept], fitted: Packing, path: Path) -> None:
    """Draw cells against operations a second, a colour for each number of bits, filled where a machine was routed.

    The others have the clock that is estimated from their cells.
    """
    def point(row: Swept) -> tuple[int, float]:
        return row.cells["COMB"], gops(row.config, row.mhz or fitted.clock(row.cells["COMB"]))

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for color, bits in enumerate(sorted({row.config.weights.bits for row in rows})):
        those = [row for row in rows if row.config.weights.bits == bits]
        for routed in (True, False):
            points = [point(row) for row in those if bool(row.mhz) is routed]
            if points:
                axes.scatter(*zip(*points, strict=True), s=24, edgecolors=f"C{color}",
                             facecolors=f"C{color}" if routed else "none",
                             label=f"{bits} bits" + ", routed" * routed)
    frontier: list[tuple[int, float]] = []
    for cells, speed in sorted(map(point, rows)):
        if not frontier or speed > frontier[-1][1]:
            frontier.append((cells, speed))
    axes.step(*zip(*frontier, strict=True), where="post", color="0.6", linewidth=1, label="most for its size")
    axes.set(xlabel="COMB of an LFE5U-85F after packing, of 83,640", ylabel="10⁹ operations a second", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", ncols=2)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    typer.run(main)
