"""Speed of the machine in clock cycles, and speed of its simulation: `nox -s bench`."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from concord.benchmarks import recurrent_steps
from concord.benchmarks.workloads import Workload, both, deep, lstm, overlapping, products
from concord.datasets import dataset
from concord.firmware.session import Session
from concord.net.model_file import load_model
from concord.sim.machines.host import Machine, build, machine
from concord.spec.host.registers import Counter
from concord.spec.isa.instructions import Error
from concord.spec.machine.config import Config
from concord.spec.machine.machine_file import find_config, machine_name
from concord.workflows.presets import compile_for
from rich.console import Console
from rich.table import Table

PRESETS = ("ulx3s", "speech")
SIZE, COUNT = 512, 8  #: Size and number of the independent products.
HIDDEN = (64, 256, 512)
STEPS = (4, 12)  #: LSTM steps of two runs; their difference excludes the beginning and the end of a program.
SAMPLES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadCosts:
    """Costs of a workload: wall time, cycles of the machine (0 on golden) and of the simulation, and beats."""

    seconds: float
    cycles: int
    simulated: int
    beats: int


def measure(nnp: Machine, workload: Workload) -> WorkloadCosts:
    """Load and run a workload; only running it is timed.

    Raises:
        RuntimeError: the program stops with an error.
    """
    nnp.reset()
    nnp.clear()
    nnp.send(*workload.messages())
    nnp.start()
    before, began = _simulated(nnp), time.perf_counter()
    nnp.run()
    seconds = time.perf_counter() - began
    error, address = nnp.error()
    if error != Error.NONE:
        raise RuntimeError(f"instruction {address}: {error.name}")
    nnp.receive()
    return WorkloadCosts(seconds=seconds, cycles=nnp.counter(Counter.CYCLES), simulated=_simulated(nnp) - before,
                         beats=nnp.counter(Counter.BEATS))


def _simulated(nnp: Machine) -> int:
    link = getattr(nnp, "link", None)
    return link.cycles if link else 0


def difference(nnp: Machine, workload: Callable[[int], Workload]) -> tuple[float, float]:
    """Cycles and beats of one step, from the difference of two runs."""
    few, many = (measure(nnp, workload(steps)) for steps in STEPS)
    steps = STEPS[1] - STEPS[0]
    return (many.cycles - few.cycles) / steps, (many.beats - few.beats) / steps


def utilisation(config: Config, beats: float, cycles: float) -> str:
    """Share of the tile engines' cycles in which they multiply."""
    return f"{beats / config.tile_engines / cycles:.1%}" if cycles else "-"


def work(table: Table, name: str, config: Config) -> None:
    """Measure products, LSTM steps and overlapping chains on golden and on RTL."""
    for kind in ("golden", "library"):
        with machine(kind, config) as nnp:
            run = measure(nnp, products(config, size=SIZE, count=COUNT))
            table.add_row(name, kind, f"{COUNT} products {SIZE} x {SIZE}", _cycles(run.cycles),
                          utilisation(config, run.beats, run.cycles), f"{run.seconds:.2f}", _rate(run))
            for hidden in HIDDEN:
                began = time.perf_counter()
                cycles, beats = difference(nnp, lambda steps, h=hidden: lstm(config, hidden=h, steps=steps))
                table.add_row(name, kind, f"LSTM step, h = {hidden}", _cycles(cycles),
                              utilisation(config, beats, cycles), f"{time.perf_counter() - began:.2f}", "")
            first, second = overlapping(config)
            for label, load in (("product", first), ("element-wise", second), ("both", both(first, second))):
                run = measure(nnp, load)
                table.add_row(name, kind, f"overlap: {label}", _cycles(run.cycles),
                              utilisation(config, run.beats, run.cycles), f"{run.seconds:.3f}", _rate(run))


def _cycles(count: float) -> str:
    return f"{count:,.0f}" if count else "-"


def _rate(run: WorkloadCosts) -> str:
    return f"{run.simulated / run.seconds:,.0f}" if run.simulated else "-"


def inferences(console: Console) -> None:
    """Print the time of one inference of each shipped network on golden and simulated, and its cycles."""
    table = Table("network", "preset", "machine", "inferences a second", "cycles an inference",
                  "MVM utilisation", title="Shipped networks")
    for path in sorted((dataset.DATA / "models").glob("*.safetensors")):
        model = load_model(path)
        samples = dataset.load(model.data).first(SAMPLES)
        name, compiled = compile_for(model, "")
        config = compiled.firmware.config
        for kind in ("golden", "library"):
            with machine(kind, config) as nnp:
                session = Session(nnp, compiled.firmware)
                session.counters()
                began = time.perf_counter()
                for sample in samples:
                    session.infer(sample)
                seconds, counters = time.perf_counter() - began, session.counters()
            cycles = counters[Counter.CYCLES] / SAMPLES
            table.add_row(path.stem, name, kind, f"{SAMPLES / seconds:.1f}", _cycles(cycles),
                          utilisation(config, counters[Counter.BEATS] / SAMPLES, cycles))
    console.print(table)


def builds(console: Console, configs: dict[str, Config]) -> None:
    """Build the machines, and print how long each build took when it was made."""
    table = Table("machine", "seconds", title="Verilator builds")
    for name, config in configs.items():
        folder = Path(build("library", config)).parent
        table.add_row(name, (folder / "done").read_text().strip() or "-")
    console.print(table)


def main(
    preset_names: Annotated[list[str] | None, typer.Option(
        "--preset", "--config", metavar="MACHINE", help="Preset, or TOML file of a machine; may be repeated.")] = None,
) -> None:
    """Measure and print tables."""
    console = Console(width=None if sys.stdout.isatty() else 130)
    configs = {}
    try:
        chosen = {machine_name(machine): find_config(machine) for machine in preset_names or PRESETS}
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    for name, config in chosen.items():
        tiles = max(COUNT * (SIZE // config.native_dim) ** 2, 8 * max(HIDDEN) ** 2 // config.native_dim ** 2)
        configs[f"{name}, {tiles} tiles"] = deep(config, tiles=tiles, hidden=max(HIDDEN))
    builds(console, configs)
    table = Table("machine", "simulation", "workload", "cycles", "MVM utilisation", "seconds", "simulated cycles/s",
                  title="Workloads")
    for name, config in configs.items():
        work(table, name, config)
    console.print(table)
    console.print(recurrent_steps.table(chosen))
    inferences(console)


if __name__ == "__main__":
    typer.run(main)
