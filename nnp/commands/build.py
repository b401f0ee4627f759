"""`nnp build`: makes a bitstream of a machine for a board."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from concord.handover.place import Placed
    from rich.table import Table


def build(
    machine: Annotated[str, typer.Argument(
        metavar="MACHINE", help="Name of a preset, or TOML file of a machine.", show_default=False)],
    board: Annotated[str, typer.Option(
        "--board", metavar="BOARD", help="Name of a board, or TOML file of one of your own.")] = "ulx3s",
    clock: Annotated[float | None, typer.Option(
        "--clock", help="Clock of the machine in MHz.", show_default="that of the board")] = None,
    device: Annotated[str, typer.Option(
        "--device", help="Chip, where the board comes with several: 12k, 25k, 45k or 85k.",
        show_default="that of the board")] = "",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Number of seeds of placement, from 1 on.")] = 1,
    processes: Annotated[int, typer.Option("-n", min=1, help="Number of seeds at a time.")] = 2,
    placer: Annotated[str, typer.Option("--placer", help="nextpnr's placer, static or heap.")] = "static",
    router: Annotated[str, typer.Option("--router", help="nextpnr's router, router1 or router2.")] = "router1",
    springs: Annotated[bool, typer.Option(
        "--springs", help="Give sites to all block RAMs and multipliers, and not to those of the matrix alone: wires "
        "are shorter on a full chip.")] = False,
    untimed: Annotated[bool, typer.Option(
        "--untimed", help="Place and route for short wires rather than for fast paths. Only for a full chip: on "
        "others, the static placer may not end.")] = False,
    output: Annotated[Path | None, typer.Option(
        "--out", "-o", help="Bitstream to write; build/boards/MACHINE-BOARD.bit if not given.")] = None,
):
    """Make a bitstream of a machine, whose host is at the board's serial port.

    What yosys and nextpnr have done is kept in build/boards, so that a command that was stopped goes on. The bitstream
    is that of the fastest seed, if it reaches the clock. Where the variable NEXTPNR_ECP5 names a nextpnr of your own,
    that one is taken.
    """
    import statistics
    from dataclasses import replace
    from functools import partial

    from concord.handover import bitstream
    from concord.hw.boards.board import DEVICES, find_board
    from concord.lib.extras import require
    from concord.lib.files import check_writable
    from concord.lib.progress import Steps
    from concord.spec.machine.machine_file import find_config, machine_name
    from rich.console import Console

    config, name, chosen = find_config(machine), machine_name(machine), find_board(board)
    if device:
        if device not in DEVICES:
            raise ValueError(f"--device {device}: choose one of {', '.join(DEVICES)}")
        chosen = replace(chosen, device=device)
    require("board")
    output = output or Path("build/boards") / f"{name}-{chosen.name}.bit"
    check_writable(output)
    console = Console(stderr=True)
    steps, rows = Steps(console, 4), {}
    status = console.status("")
    say = status.update if console.is_terminal else partial(console.print, highlight=False, markup=False)
    with steps.step("synthesise", "minutes, where it has not been done before") as note, status:
        made = bitstream.design(config, chosen, clock or chosen.clock, Path("build/boards"), placer, router,
                                springs=springs, timed=not untimed)
        bitstream.netlist(made, say)
        note.text = f"{name} at {made.mhz:g} MHz in {made.folder}"
    with steps.step("pack", "a minute, where it has not been done before") as note, status:
        note.text = bitstream.crowding(made)
    with steps.step("place and route", f"{_seeds(seeds)}, minutes to an hour for each"), status:
        for seed, found in bitstream.all_placed(made, list(range(1, seeds + 1)), processes, say):
            rows[seed] = found
            console.print(f"seed {seed}: {found.clock:.1f} MHz", highlight=False)
    Console(width=None if console.is_terminal else 120).print(_table(name, chosen.name, made.mhz, rows))
    clocks = sorted(each.clock for each in rows.values())
    typer.echo(f"{clocks[0]:.1f}, {statistics.median(clocks):.1f}, {clocks[-1]:.1f} MHz: least, median and largest "
               f"clock of {_seeds(len(rows))}")
    with steps.step("write the bitstream") as note:
        best, digest = bitstream.write_bitstream(made, rows, output)
        note.text = f"seed {best}"
    typer.echo(f"{output}: {output.stat().st_size:,} bytes, SHA-256 {digest}")
    if chosen.loader:
        typer.echo(f"write it to the board: openFPGALoader --board {chosen.loader} {output}")


def _seeds(count: int) -> str:
    return f"{count} seed" if count == 1 else f"{count} seeds"


def _table(machine: str, board: str, mhz: float, rows: "dict[int, Placed]") -> "Table":
    """A table of seeds."""
    from concord.handover.place import CELLS
    from rich.table import Table

    made = Table("seed", "MHz", "logic, wire: ns", *CELLS.values(), "longest path",
                 title=f"{machine} on {board}, to run at {mhz:g} MHz", title_justify="left")
    for seed, found in sorted(rows.items()):
        made.add_row(str(seed), f"{found.clock:.1f}", f"{found.logic:.1f}, {found.wire:.1f}", *found.shares,
                     f"{found.begins} to {found.ends}")
    return made
