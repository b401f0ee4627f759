"""The MLPerf Tiny reference architectures and single convolutions on the machine: `nox -s bench_images`.

Each is compiled for each preset and runs on the golden machine and on the Verilated one. The tables have the clock
cycles of each layer, its share of the multiplier's peak, and what its pipelines waited for.
"""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # golden is timed on one core; numpy reads this at its import

import typer
from concord.benchmarks import tiny_models
from concord.benchmarks.image_costs import Measurement, measure
from concord.firmware.layer_costs import WAITS, LayerCost, wait_title
from concord.sim.machines.host import build
from concord.spec.machine.machine_file import find_config, machine_name
from rich.console import Console
from rich.table import Table

OUT = Path("build/bench_images")
DEFAULT = ("vision_large", "vision")


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """What the preset `vision_large` must reach.

    Attributes:
        cycles:  Most clock cycles of an inference, input and output included; None for single convolutions.
        of_peak: Least share of the multiplier's peak of a single convolution; None for networks.
    """

    cycles: int | None = None
    of_peak: float | None = None

    def __str__(self) -> str:
        return f"{self.cycles:,} cycles" if self.cycles else f"{self.of_peak:.0%} of peak"

    def met(self, measured: Measurement) -> bool:
        """Whether a measurement reaches the goal."""
        if self.cycles:
            return measured.cycles <= self.cycles
        return measured.of_peak(measured.useful(measured.single), measured.single.cycles) >= self.of_peak


GOAL_PRESET = "vision_large"
GOALS = {
    "resnet8": Goal(cycles=38_000), "ds-cnn": Goal(cycles=20_000), "mobilenet": Goal(cycles=75_000),
    "autoencoder": Goal(cycles=1_600), "conv3x3-64": Goal(of_peak=0.95), "conv1x1-64": Goal(of_peak=0.85),
    "conv3x3-16": Goal(of_peak=0.85),
}


def cost_row(measured: Measurement, title: str, costs: list[LayerCost]) -> list[str]:
    """Cells of a table for the sum of some costs."""
    useful = sum(measured.useful(cost) for cost in costs)
    done = sum(cost.products(measured.config) for cost in costs)
    cycles = sum(cost.cycles for cost in costs)
    waits = [sum(cost.counters[counter] for cost in costs) for counter in WAITS]
    return [title, f"{cycles:,}", f"{useful:,}", f"{done:,}", f"{measured.of_peak(useful, cycles):.1%}",
            f"{measured.of_peak(done, cycles):.1%}", *(f"{count:,}" for count in waits)]


def layer_table(measured: Measurement, title: str) -> Table:
    """A table of the cycles, products and waits of each layer."""
    table = Table(title=title, title_justify="left")
    table.add_column("layer", min_width=max(len(cost.title) for cost in measured.costs))
    for name in ("cycles", "products, useful", "done", "useful, of peak", "done, of peak"):
        table.add_column(name, justify="right")
    for counter in WAITS:
        table.add_column(wait_title(counter), justify="right")
    for cost in measured.costs:
        table.add_row(*cost_row(measured, cost.title, [cost]))
    table.add_section()
    table.add_row(*cost_row(measured, "all", measured.costs))
    if measured.single:
        table.add_row(*cost_row(measured, f"{measured.single.title}, alone", [measured.single]))
    return table


def summary() -> Table:
    """The table with one row for each model and preset."""
    table = Table(title="Inferences, input and output included; single convolutions alone, their input in memory",
                  title_justify="left")
    for name in ("model", "preset", "differing bits", "tiles", "entries", "cycles", "products", "of peak", "goal", "",
                 "compile, s", "golden, 1/s", "simulated, s"):
        table.add_column(name, justify="left" if name in ("model", "preset", "") else "right")
    return table


def summary_row(measured: Measurement, name: str, where: str) -> list[str]:
    """Cells of the summary for one model and preset."""
    costs = [measured.single] if measured.single else measured.costs
    cycles = measured.single.cycles if measured.single else measured.cycles
    useful, goal = sum(map(measured.useful, costs)), GOALS[name] if where == GOAL_PRESET else None
    seconds, usage = measured.seconds, measured.compiled.usage
    return [tiny_models.title(name), where, f"{measured.bits:,}",
            *(f"{usage.get(memory, (0, 0))[0]:,}" for memory in ("MatrixRf", "VectorRf")), f"{cycles:,}",
            f"{useful:,}", f"{measured.of_peak(useful, cycles):.1%}", str(goal or "-"),
            ("met" if goal.met(measured) else "missed") if goal else "",
            f"{seconds['compile']:.2f}", f"{1 / seconds['golden']:.1f}", f"{seconds['library']:.2f}"]


def main(
    presets: Annotated[list[str] | None, typer.Option(
        "--preset", "--config", metavar="MACHINE", help="Preset, or TOML file of a machine; may be repeated.",
        show_default=" and ".join(DEFAULT))] = None,
    models: Annotated[list[str] | None, typer.Option(
        "--model", help=f"{', '.join(tiny_models.MODELS)}; may be repeated.", show_default="all")] = None,
    samples: Annotated[int, typer.Option(help="Number of inputs that are compared.", min=1)] = 2,
) -> None:
    """Compile, run and compare, and print tables.

    The exit code is 1 if a bit differs, or if the preset of the goals misses one or cannot run a model.
    """
    console, began = Console(width=None if sys.stdout.isatty() else 200), time.perf_counter()
    if unknown := set(models or ()) - set(tiny_models.MODELS):
        raise typer.BadParameter(f"there is no model {min(unknown)!r}: choose of {', '.join(tiny_models.MODELS)}")
    try:
        machines = {machine_name(machine): find_config(machine) for machine in presets or DEFAULT}
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    for config in machines.values():
        build("library", config)
    table, refused, good = summary(), [], True
    for name in models or tiny_models.MODELS:
        try:
            model = tiny_models.quantized(name, OUT)
        except ValueError as error:
            refused.append(f"{name} cannot be quantised: {error}")
            good = False
            continue
        measured_layer = tiny_models.MEASURED if name in tiny_models.SINGLES else None
        for where, config in machines.items():
            try:
                found = measure(model, config, tiny_models.run_inputs(name, samples), measured_layer)
            except ValueError as error:
                refused.append(f"{name} on {where}: {error}")
                good &= where != GOAL_PRESET
                continue
            good &= not found.bits and (where != GOAL_PRESET or GOALS[name].met(found))
            console.print(layer_table(found, f"{tiny_models.title(name)} on {where}"))
            table.add_row(*summary_row(found, name, where))
    console.print(table)
    for sentence in refused:
        console.print(sentence, markup=False, soft_wrap=True)
    console.print(f"{time.perf_counter() - began:.0f} s")
    raise typer.Exit(0 if good else 1)


if __name__ == "__main__":
    typer.run(main)
