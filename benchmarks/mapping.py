"""Ways to map a machine to an ECP5, each beside the way of `nnp build`: `nox -s mapping -- --preset tiny`.

One row for each choice that is made otherwise: cells after packing, as nextpnr counts them. What has ended is kept in
build/mapping by the content of the Verilog and of Yosys's commands.
"""

import hashlib
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from concord.handover.place import CELLS, NEXTPNR, packed, tool
from concord.hw.board_top import BoardTop, clock_on
from concord.hw.boards.board import Board, find_board
from concord.hw.lib.ecp5 import Ecp5
from concord.hw.netlist import Mapping, synthesise
from concord.hw.verilog import verilog
from concord.lib.processes import calls
from concord.nnp.lib.errors import sentences
from concord.spec.machine.machine_file import find_config, machine_name
from rich.console import Console
from rich.table import Table

KEPT = Path("build/mapping")
#: How cells are made, by what is done otherwise than by `nnp build`.
WAYS = {"as nnp build does": Mapping()} | {
    way: Mapping(options=f"{Mapping().options} {option}") for way, option in (
        ("registers are moved by ABC", "-dff"), ("ABC instead of ABC9", "-noabc9"), ("no clock enables", "-nodffe"),
        ("constants compared in logic", "-cmp2softlogic"), ("reads of written words undefined", "-no-rw-check"),
        ("no multipliers", "-nodsp"), ("no block RAM", "-nobram"))
} | {
    "multiplexers of slices": Mapping(options=""), "chains of carries as Yosys makes them": Mapping(long=True),
    "all registers are flip-flops": Mapping(outside=True),
}


def measured(text: str, board: Board, way: str) -> dict[str, int]:
    """Cells of Verilog that is mapped in one way, as they were kept, or counted now.

    Raises:
        RuntimeError: Yosys or nextpnr fails.
    """
    name = hashlib.sha256(repr((text, WAYS[way].recipe(), board.chip)).encode()).hexdigest()[:16]
    path, work = KEPT / f"{name}.json", KEPT / name
    if not path.exists():
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        netlist = synthesise(text, work, WAYS[way])
        path.write_text(json.dumps(packed(netlist, board.chip)))
        shutil.rmtree(work)
    return json.loads(path.read_text())


@sentences
def main(
    preset: Annotated[str, typer.Option(
        "--preset", "--config", metavar="MACHINE", help="Name of a preset, or TOML file of a machine.")] = "ulx3s",
    board: Annotated[str, typer.Option(help="Name of a board, or TOML file of one of your own.")] = "ulx3s",
    way: Annotated[list[str] | None, typer.Option(
        help="What is done otherwise. May be repeated.", show_default="all")] = None,
    processes: Annotated[int, typer.Option("-n", help="Number of processes.")] = 2,
) -> None:
    """Map a machine in several ways, and print a table of its cells; a machine of the ulx3s's size takes an hour."""
    console, begin = Console(width=110 if not sys.stdout.isatty() else None), time.monotonic()
    target = find_board(board)
    tool(NEXTPNR)
    text = verilog(BoardTop(find_config(preset), target, clock_on(target, target.clock)), "top", Ecp5())
    ways, found = list(dict.fromkeys([next(iter(WAYS)), *(way or WAYS)])), {}
    for each in ways:
        if each not in WAYS:
            raise typer.BadParameter(f"there is no way {each!r}: choose one of {', '.join(WAYS)}")
    for (_, _, done), cells in calls(measured, [(text, target, each) for each in ways], processes):
        found[done] = cells
        console.print(f"{done}: {cells['TRELLIS_COMB']:,} COMB, {time.monotonic() - begin:.0f} s", highlight=False)
    table = Table("way", *CELLS.values(), "COMB beside the first way", title_justify="left",
                  title=f"{machine_name(preset)} on {target.name}, after packing")
    for each in ways:
        share = found[each]["TRELLIS_COMB"] / found[ways[0]]["TRELLIS_COMB"] - 1
        table.add_row(each, *(f"{found[each][kind]:,}" for kind in CELLS), f"{100 * share:+.1f} %")
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
