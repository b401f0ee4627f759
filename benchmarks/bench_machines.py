"""Throughput of several machines beside one: `nox -s bench_machines`.

Networks of two LSTM layers with random weights, and the MLPerf Tiny reference architectures with `--tiny`, are cut over
machines and run on the library. A row of the table has the cycles from result to result and to the first result, for
one machine and for several, and the estimate by which the network is cut. Outputs are compared with the network in
golden arithmetic.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from concord.campaigns.makers import networks
from concord.compiler.cascade import CutCosts, PartCompiler
from concord.firmware.cascade import Cascade
from concord.firmware.cascade_session import CascadeSession, Streamed
from concord.net import network
from concord.net.model import Model
from concord.sim.machines.cascade import cascade
from concord.spec.machine.machine_file import find_config, machine_name
from concord.verification.batches import count_bits
from concord.workflows.cascades import Wish, compile_cascade, costs_of, whole
from rich.console import Console
from rich.table import Table

OUT = Path("build/bench_machines")
STEPS, SAMPLES = 20, 6
SIZES = (32, 64, 96)  #: Elements of the hidden vectors.
TINY = ("resnet8", "ds-cnn", "autoencoder")


def lstms(config) -> Iterator[tuple[Model, np.ndarray]]:
    """Networks of two LSTM layers with random weights, and their samples."""
    for size in SIZES:
        rng = np.random.default_rng(0)
        model = networks.recurrent(rng, config, [16, size, size], block=[False, False], outputs=10)
        yield networks.model(model.layers, name=f"LSTM 16-{size}-{size}"), networks.inputs(rng, SAMPLES, STEPS, 16)


def tiny() -> Iterator[tuple[Model, np.ndarray]]:
    """Reference architectures of MLPerf Tiny with random weights, and their samples."""
    from concord.benchmarks import tiny_models

    for name in TINY:
        yield tiny_models.quantized(name, OUT), tiny_models.run_inputs(name, SAMPLES)


def stream(firmware: Cascade, samples: np.ndarray) -> Streamed:
    """Run samples one after the other on the library."""
    with cascade("library", [part.config for part in firmware.parts]) as machines:
        return CascadeSession(machines, firmware.parts).stream(list(samples))


def row(model: Model, samples: np.ndarray, preset: str, machines: int) -> list[str]:
    """Cells of the table for one network."""
    config = find_config(preset)
    _, compiled = compile_cascade(model, preset, Wish(machines=machines))
    several = stream(compiled.cascade, samples)
    bits = count_bits(several.outputs, network.forward(model, samples)[-1].outputs)
    one = whole(model, config)
    foreseen = CutCosts(PartCompiler(model, [config] * machines),
                        costs_of(model, config)).interval(compiled.cascade.cuts)
    foreseen *= len(samples[0]) if compiled.cascade.recurrent else 1
    alone = stream(Cascade.of(one.firmware), samples) if one else None
    beside = [f"{alone.interval:,.0f}", f"{alone.latency:,}"] if alone else ["too large", "too large"]
    times = f"{alone.interval / several.interval:.2f}" if alone else ""
    return [model.name, ", ".join(compiled.cascade.cuts), str(bits), *beside, f"{several.interval:,.0f}",
            f"{foreseen:,}", f"{several.latency:,}", times]


def main(
    preset: Annotated[str, typer.Option("--preset", help="Machine, a preset's name or a TOML file.")] = "vision",
    machines: Annotated[int, typer.Option("--machines", help="Number of machines.", min=2)] = 2,
    with_tiny: Annotated[bool, typer.Option("--tiny", help="Run MLPerf Tiny's architectures instead.")] = False,
):
    """Compare the throughput of several machines with that of one; the exit code is 1 if a bit differs."""
    console, began = Console(width=None if sys.stdout.isatty() else 200), time.perf_counter()
    table = Table(title=f"cycles on {machines} x {machine_name(preset)} and on one", title_justify="left")
    for name in ("network", "cut after", "differing bits", "one, interval", "one, first", "several, interval",
                 "foreseen", "several, first", "times the throughput"):
        table.add_column(name, justify="left" if name in ("network", "cut after") else "right")
    rows = []
    for model, samples in tiny() if with_tiny else lstms(find_config(preset)):
        try:
            rows.append(row(model, samples, preset, machines))
        except ValueError as error:
            console.print(str(error), markup=False, soft_wrap=True)
            continue
        table.add_row(*rows[-1])
    console.print(table)
    console.print(f"{time.perf_counter() - began:.0f} s")
    raise typer.Exit(int(any(cells[2] != "0" for cells in rows)))


if __name__ == "__main__":
    typer.run(main)
