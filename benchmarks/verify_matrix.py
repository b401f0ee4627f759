"""Train networks by every method and width that a machine can run, and verify them on RTL: `nox -s verify_matrix`."""

import io
import os
import random
import sys
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from concord.benchmarks.side_by_side import side_by_side
from concord.nnp.lib.options import MachineKind
from concord.nnp.verify.builds import Builds
from concord.nnp.verify.inputs import Source
from concord.nnp.verify.verification import Request, prepare, verify_model
from concord.spec.config import preset
from concord.spec.formats import Format
from concord.train.lib import networks
from concord.train.lib.methods import ActivationTraining, Gates, Recipe, WeightTraining
from concord.train.runs.image import train_image
from concord.train.runs.recurrent import train_recurrent
from rich.console import Console
from rich.table import Table
from torch import nn

OUT = Path("build/verify_matrix")
#: Presets, and the bits of weights and of input codes that they can run.
MACHINES = {"ulx3s": (4, 4), "speech": (8, 8)}
EPOCHS, LSTM_EPOCHS, SAMPLES = (1, 1, 1), (4, 1, 1), 1000


def small() -> nn.Module:
    """A perceptron that fits both machines."""
    return networks.perceptron((64, 32))


def perceptrons(name: str) -> list[tuple[str, str, Recipe]]:
    """Column, row and recipe of each network for a machine."""
    most, inputs = MACHINES[name]
    found = []
    for weights, activations in product(WeightTraining, ActivationTraining):
        kind = weights.load()
        for bits in (bits for bits in range(weights.least_bits, most + 1) if kind.integers(bits, True).bits <= most):
            recipe = Recipe(weights_bits=bits, input_bits=inputs, symmetric=(True, True), weights=weights,
                            activations=activations)
            found.append((f"W{bits}/A{inputs}", f"{weights}, {activations}", recipe))
    return found


@cache
def builds() -> Builds:
    """The builds of both machines; each process makes or finds them once, and waits until they are complete."""
    with Builds(MachineKind.LIBRARY, map(preset, MACHINES)) as found:
        for name in MACHINES:
            found.wait(preset(name))
    return found


def mismatches(path: Path, name: str, samples: int, data: Path | None = None) -> int:
    """Number of bits and event counters that differ on the simulated machine."""
    console = Console(file=io.StringIO())
    source = Source(inputs=None, data=data, samples=str(samples), first=0, default=samples)
    request = Request(path=path, place=str(path), source=source, preset=name, kind=MachineKind.LIBRARY, jobs=1,
                      folder=OUT, waves=False)
    done = verify_model(prepare(request, console), builds(), console)
    return done.bits + done.reference_bits + len(done.events)


def perceptron(name: str, row: str, column: str, recipe: Recipe, samples: int) -> tuple[str, str, int]:
    """Train and verify a perceptron; return its row and column in the table, and its number of mismatches."""
    path = OUT / f"mlp-{os.getpid()}.safetensors"
    train_image(path, network="concord.benchmarks.verify_matrix:small", recipe=recipe, epochs=EPOCHS, samples=SAMPLES)
    return row, column, mismatches(path, name, samples)


def lstm(gates: Gates, bits: int, folder: Path | None, samples: int) -> tuple[str, str, int]:
    """Train and verify an LSTM; return its row and column in the table, and its number of mismatches."""
    path = OUT / f"lstm-{os.getpid()}.safetensors"
    train_recurrent(path, weights_format=Format(bits=bits, symmetric=True), input_format=Format(bits=8, symmetric=True),
                    gates=gates, epochs=LSTM_EPOCHS, folder=folder)
    return str(gates), f"W{bits}/A8", mismatches(path, "speech", samples, folder)


def lstms() -> list[tuple[Gates, int]]:
    """Gate settings and widths. Asymmetric 8-bit weights need 9 bits, which the machine does not have."""
    forms = [Gates(asymmetric=a, shared=s) for a, s in product((False, True), repeat=2)]
    return [(gates, bits) for gates in forms for bits in range(2, 9 - gates.asymmetric)]


def table(title: str, cells: list[tuple[str, str, int]], console: Console) -> int:
    """Print a table, and return the sum of its mismatches."""
    found = {(row, column): value for row, column, value in cells}
    rows, columns = (sorted({key[place] for key in found}) for place in (0, 1))
    made = Table("training", *columns, title=title)
    for row in rows:
        made.add_row(row, *(str(found.get((row, column), "-")) for column in columns))
    console.print(made)
    return sum(found.values())


def main(
    samples: Annotated[int, typer.Option(help="Number of test samples for each network.")] = 5,
    networks: Annotated[int | None, typer.Option(help="Number of random networks.", show_default="all")] = None,
    seed: Annotated[int, typer.Option(help="Seed of that choice.")] = 0,
    vowels: Annotated[Path | None, typer.Option(help="Folder with JapaneseVowels_TRAIN.ts.")] = None,
) -> None:
    """Train and verify all networks, and print tables; the exit code is 1 if a bit differs."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    OUT.mkdir(parents=True, exist_ok=True)
    builds()  # builds are made once, before two processes need them
    jobs = [(f"MLP on {name}", perceptron, (name, row, column, recipe, samples))
            for name in MACHINES for column, row, recipe in perceptrons(name)]
    jobs += [("LSTM on speech", lstm, (*kind, vowels, samples)) for kind in lstms()]
    if networks is not None:
        jobs = random.Random(seed).sample(jobs, min(networks, len(jobs)))
    found = 0
    for title, call in dict.fromkeys((title, call) for title, call, _ in jobs):
        cells = side_by_side(title, call, [arguments for name, _, arguments in jobs if name == title], console)
        found += table(f"{title}: mismatching bits over {samples} samples", cells, console)
    console.print(f"{len(jobs)} networks, {found} mismatching bits")
    raise typer.Exit(0 if not found else 1)


if __name__ == "__main__":
    typer.run(main)
