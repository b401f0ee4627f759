"""What several cores before one memory bring: images a second of a network, whose samples they take in turns.

`nox -s bench_accelerator -- --model shipped --cores 1,2,4`. Cycles are Verilator's, with the library's memory: as many
bytes a cycle each way as the bus has, and 40 cycles from an address to the first beat.
"""

import re
from dataclasses import replace
from typing import Annotated

import numpy as np
import typer
from concord.benchmarks.bench_dram import SHIPPED, networks_of
from concord.compiler.network import compile_network
from concord.firmware.accelerator_session import accelerator_session
from concord.net import network
from concord.nnp.lib.errors import sentences
from concord.spec.machine.config import preset
from rich.console import Console
from rich.table import Table


@sentences
def main(
    preset_: Annotated[str, typer.Option("--preset", help="Machine of each core.")] = "vision_dram",
    model: Annotated[str, typer.Option(help="Network, as `bench_dram` names them.")] = SHIPPED,
    cores: Annotated[str, typer.Option(help="Numbers of cores, with commas.")] = "1,2,4",
    samples: Annotated[int, typer.Option(min=1, help="Inputs of each core, behind one that is not measured.")] = 4,
    tiles: Annotated[int, typer.Option(help="Tiles of MatrixRf, where not as many as the preset has.")] = 0,
    clock: Annotated[float, typer.Option(min=0, help="Clock in MHz, for inputs a second.", show_default=False)] = 0,
):
    """Measure accelerators of several cores."""
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", cores):
        raise ValueError(f"--cores {cores}: give numbers of cores with commas between them, as in 1,2,4")
    config = preset(preset_)
    config = replace(config, matrix_tiles=tiles or config.matrix_tiles)
    counts = [int(count) for count in cores.split(",")]
    table = Table("network", "cores", "differing", "cycles an input", "rate / first", "bytes read an input",
                  *[f"inputs/s at {clock:g} MHz"] * bool(clock))
    for name, made, inputs in networks_of(model, 0, config, samples * max(counts)):
        firmware, first = compile_network(made, config).firmware, 0.0
        wanted = network.forward(made, inputs)[-1].outputs
        for count in counts:
            taken = slice(0, samples * count)
            with accelerator_session(firmware, "library", count) as session:
                session.infer_all(list(inputs[:count]))  # each core gets its program
                before, moved = session.cycles, session.machine.moved(written=False)
                differing = int((np.asarray(session.infer_all(list(inputs[taken]))) != wanted[taken]).sum())
                moved = session.machine.moved(written=False) - moved
                cycles = (session.cycles - before) / (samples * count)
            first = first or cycles
            table.add_row(name, str(count), str(differing), f"{cycles:,.0f}", f"{first / cycles:.2f}",
                          f"{moved // (samples * count):,}", *[f"{clock * 1e6 / cycles:,.0f}"] * bool(clock))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
