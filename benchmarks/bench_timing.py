"""How fast machines without numbers are built and run, beside the whole machine where there is one.

A cycle takes a simulation as long whether the machine works or rests, so that it is measured at rest.
"""

import time
from dataclasses import replace
from typing import Annotated

import typer
from concord.hw.timing import timing_verilog
from concord.nnp.lib.errors import sentences
from concord.sim.machines.library import Library
from concord.sim.machines.timing_library import timing_text
from concord.spec.machine.config import PRESETS, Config
from rich.console import Console
from rich.table import Table

SLICES, SLICE = 5, 100_000  #: Measurements, of which the fastest counts, and cycles of each.


def large(native_dim: int, lanes: int, tile_engines: int, mfu_lanes: int) -> Config:
    """A machine of the published formats and depths with other dimensions."""
    published = PRESETS["brainwave_s10"]
    return replace(
        published,
        native_dim=native_dim,
        lanes=lanes,
        tile_engines=tile_engines,
        mfu_lanes=mfu_lanes,
        matrix_tiles=published.matrix_tiles // tile_engines * tile_engines,
    )


#: Machines by name, or by native dimension, lanes and engines.
MACHINES = {
    "vision": PRESETS["vision"],
    "vision_large": PRESETS["vision_large"],
    "256 x 32 x 8": large(256, 32, 8, 32),
    "512 x 32 x 8": large(512, 32, 8, 64),
}
WHOLE = ("vision", "vision_large")  #: Those of which Verilator builds the whole machine, too, in minutes.


def rate(library: Library) -> float:
    """Simulated cycles in a second of processor time."""
    best = 0.0
    library.step(SLICE // 10)
    for _ in range(SLICES):
        began = time.process_time()
        library.step(SLICE)
        best = max(best, SLICE / (time.process_time() - began))
    library.close()
    return best


def row(name: str, config: Config, *, fresh: bool) -> list[str]:
    """The cells of a machine."""
    began = time.perf_counter()
    text = timing_verilog(config) if fresh else timing_text(config)
    elaborated = time.perf_counter() - began
    text += f"// {time.time_ns()}\n" * fresh  # no build in the cache has this line
    began = time.perf_counter()
    library = Library(config, text=text, thorough=True)
    built = time.perf_counter() - began
    timing = rate(library)
    beside = []
    if name in WHOLE:
        whole = rate(Library(config))
        beside = [f"{whole:,.0f}", f"{timing / whole:.1f}"]
    products = config.native_dim * config.lanes * config.tile_engines
    seconds = [f"{elaborated:.0f}", f"{built:.0f}"] if fresh else ["", ""]
    return [name, f"{products:,}", *seconds, f"{timing:,.0f}", *beside]


@sentences
def main(
    machine: Annotated[str, typer.Option(help=f"One of {'; '.join(MACHINES)}; all by default.")] = "",
    fresh: Annotated[bool, typer.Option(help="Build the machines anew, and print how long it takes.")] = True,
) -> None:
    """Print a table."""
    if machine and machine not in MACHINES:
        raise ValueError(f"there is no machine {machine!r}: choose one of {'; '.join(MACHINES)}")
    table = Table("machine", title="machines without numbers", title_justify="left")
    for head in ("products a cycle", "Verilog, s", "build, s", "cycles/s", "whole, cycles/s", "ratio"):
        table.add_column(head, justify="right")
    for name in [machine] if machine else MACHINES:
        table.add_row(*row(name, MACHINES[name], fresh=fresh))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
