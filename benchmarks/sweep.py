"""Machines of many shapes on an ECP5: cells, clocks and products a second: `nox -s sweep -- -n 1 --record`.

Machines differ in bits of elements, rows, lanes, tile engines, lanes of words and entries of VectorRf. Each is
synthesised with its serial port for the ULX3S and packed by nextpnr; some are routed. What has ended is kept in
build/sweep, so that a session that was stopped goes on. `--record` writes machines/swept.csv, to which
`machines.packing` fits its estimates, and the picture in docs/presets.md.
"""

import hashlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import matplotlib
import typer
from concord.handover import bitstream
from concord.handover.place import CELLS, packed
from concord.hw.boards.board import find_board
from concord.lib.processes import calls
from concord.machines.fit import products
from concord.machines.packing import Swept, clock, errors, write_swept
from matplotlib import pyplot as plt
from rich.console import Console
from rich.table import Table

matplotlib.use("Agg")
KEPT, FOLDER = Path("build/sweep"), Path("build/boards")
PICTURE = Path("docs/sweep.svg")
BOARD, TARGET = "ulx3s", 100  #: Board, and clock in MHz that placement aims at.


def shape(bits: int, rows: int, lanes: int, *, engines: int = 1, multipliers: int, words: int = 2,
          entries: int = 512) -> str:
    """What a machine changes in the preset `ulx3s`, as TOML on one line.

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


def measured(changes: str) -> Swept:
    """The cells of a machine, and its clock if it is one of `ROUTED`, as they were kept, or made now.

    Raises:
        RuntimeError: a tool fails, or is not installed.
    """
    kept = KEPT / f"{hashlib.sha256(changes.encode()).hexdigest()[:12]}.json"
    empty = Swept(preset="ulx3s", changes=changes)
    made = bitstream.design(empty.config, find_board(BOARD), TARGET, FOLDER)
    name = made.folder.name
    if kept.exists() and (found := json.loads(kept.read_text()))["name"] == name:
        return Swept(**found["row"])
    netlist = bitstream.netlist(made)
    if changes in ROUTED:
        placed = bitstream.placed(made, 1)
        cells, mhz = placed.cells, round(placed.clock, 1)
    else:
        cells, mhz = packed(netlist, [*made.board.chip, "--lpf", "top.lpf"]), None
        netlist.unlink()
    row = Swept(preset="ulx3s", changes=changes, cells={title: cells[kind] for kind, title in CELLS.items()}, mhz=mhz)
    KEPT.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"name": name, "row": asdict(row)}))
    return row


def main(
    count: Annotated[int, typer.Option(min=1, help="Number of machines, from the first on.")] = len(MACHINES),
    processes: Annotated[int, typer.Option("-n", min=1, help="Number of machines at a time.")] = 2,
    record: Annotated[bool, typer.Option("--record", help="Write machines/swept.csv, and the picture.")] = False,
) -> None:
    """Synthesise, pack and route machines, and print a table of them."""
    console = Console(width=130 if not sys.stdout.isatty() else None)
    chosen, rows = MACHINES[:count], {}
    for (changes,), row in calls(measured, [(changes,) for changes in chosen], processes):
        rows[changes] = row
        console.print(f"{len(rows)} of {len(chosen)}: {changes}: {row.cells['COMB']:,} COMB"
                      + (f", {row.mhz:.1f} MHz" if row.mhz else ""), highlight=False, markup=False, soft_wrap=True)
    if record:
        write_swept([rows[changes] for changes in chosen])
    console.print(table(list(rows.values())))
    if record:
        with matplotlib.rc_context({"svg.hashsalt": "concord"}):
            picture(list(rows.values()), PICTURE)
        console.print("largest error of an estimate for a machine that is left out of the fit: " + ", ".join(
            f"{kind} {max(map(abs, errors(kind))):.0%}" for kind in ("COMB", "clock")) + f"; {PICTURE}")


def table(rows: list[Swept]) -> Table:
    """A table of machines, the smallest first."""
    made = Table("bits", "rows x lanes x engines", "words", "VectorRf", *CELLS.values(), "MHz", "GOPS",
                 title=f"machines on {BOARD}, aimed at {TARGET} MHz, one seed", title_justify="left")
    for row in sorted(rows, key=lambda row: row.cells["COMB"]):
        config = row.config
        mhz = row.mhz or clock(config)
        made.add_row(str(config.weights.bits), f"{config.native_dim} x {config.lanes} x {config.tile_engines}",
                     str(config.mfu_lanes), f"{config.vector_rf:,}",
                     *(f"{row.cells[kind]:,}" for kind in CELLS.values()),
                     f"{mhz:.1f}" if row.mhz else f"({mhz:.0f})", f"{gops(row):.1f}")
    return made


def gops(row: Swept) -> float:
    """Billions of operations a second, two for each product, at the routed clock or else the estimated one."""
    return 2 * products(row.config) * (row.mhz or clock(row.config)) / 1000


def picture(rows: list[Swept], path: Path) -> None:
    """Draw cells against operations a second, a colour for each number of bits, filled where a machine was routed."""
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for color, bits in enumerate(sorted({row.config.weights.bits for row in rows})):
        those = [row for row in rows if row.config.weights.bits == bits]
        for routed in (True, False):
            points = [(row.cells["COMB"], gops(row)) for row in those if bool(row.mhz) is routed]
            if points:
                axes.scatter(*zip(*points, strict=True), s=24, edgecolors=f"C{color}",
                             facecolors=f"C{color}" if routed else "none",
                             label=f"{bits} bits" + ", routed" * routed)
    best, frontier = 0.0, []
    for row in sorted(rows, key=lambda row: row.cells["COMB"]):
        if gops(row) > best:
            best = gops(row)
            frontier.append((row.cells["COMB"], best))
    axes.step(*zip(*frontier, strict=True), where="post", color="0.6", linewidth=1, label="most for its size")
    axes.set(xlabel="COMB of an LFE5U-85F after packing, of 83,640", ylabel="10⁹ operations a second", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", ncols=2)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    typer.run(main)
