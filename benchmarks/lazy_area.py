"""Cells and clock of the lazy update on an ECP5, placed and routed: `nox -s synth_lazy -- --lanes 4`."""

import sys
import time
from collections import Counter
from typing import Annotated

import typer
from concord.benchmarks.routing import boxed, route
from concord.benchmarks.synth import COSTS, YosysScript, costs, synthesise
from concord.handover.place import NEXTPNR, tool
from concord.hw.lazy.lazy_update import LazyUpdate
from concord.hw.verilog import verilog
from concord.nnp.lib.errors import sentences
from concord.spec.numbers.lazy import LazyFormat
from rich.console import Console
from rich.table import Table


@sentences
def main(
    lanes: Annotated[list[int] | None, typer.Option(help="Parameters per cycle; 1, 4 and 16 if left out.")] = None,
    target: Annotated[int, typer.Option(help="Clock in MHz that placement aims at.")] = 150,
) -> None:
    """Synthesise, place and route the lazy update, and print a table."""
    console, fmt = Console(width=100 if not sys.stdout.isatty() else None), LazyFormat()
    table = Table("lanes", *COSTS, "MHz", "million parameters/s", "seconds",
                  title=f"Lazy update of {fmt.bits}, {fmt.residual} and {fmt.update} bits on an LFE5U-85F-6")
    tool(NEXTPNR)
    for count in lanes or (1, 4, 16):
        began = time.monotonic()
        text = verilog(LazyUpdate(fmt, count), "top")
        cells = sum(synthesise(text, YosysScript(flatten=True, wide=True)).values(), Counter())
        clock = route(boxed(LazyUpdate(fmt, count)), target).clock
        table.add_row(str(count), *(f"{cost:,}" for cost in costs(cells).values()), f"{clock:.0f}",
                      f"{clock * count:,.0f}", f"{time.monotonic() - began:.0f}")
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
