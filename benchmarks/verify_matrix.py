"""Networks trained by every method and width that a machine takes, verified on its gates: `nox -s verify_matrix`."""

import io
import os
import sys
from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from nnp.builds import Builds
from nnp.options import MachineKind
from nnp.verification import Request, verify_model
from spec.config import preset
from spec.formats import Format
from train.image import train_image
from train.lstm import train_lstm
from train.methods import ActivationTraining, Gates, Recipe, WeightTraining

OUT = Path("build/verify_matrix")
#: Presets, and what they take: bits of weights, bits of input codes.
MACHINES = {"ulx3s": (4, 4), "speech": (8, 8)}
EPOCHS, SAMPLES = (1, 1, 1), 1000


def perceptrons(name: str) -> list[tuple[str, str, Recipe]]:
    """Column, row and recipe of each network for a machine."""
    most, inputs = MACHINES[name]
    found = []
    for weights, activations in product(WeightTraining, ActivationTraining):
        # Odd integers take a bit more.
        widths = range(1, most) if weights is WeightTraining.DOREFA else range(2, most + 1)
        for bits in widths:
            recipe = Recipe(weights_bits=bits, input_bits=inputs, symmetric=(True, True), weights=weights,
                            activations=activations)
            found.append((f"W{bits}/A{inputs}", f"{weights}, {activations}", recipe))
    return found


def mismatches(path: Path, name: str, builds: Builds, samples: int) -> int:
    """Bits and event counters that differ on the simulated machine."""
    request = Request(
        path=path, place=str(path), samples=str(samples), first=0, preset=name, kind=MachineKind.LIBRARY, jobs=1,
        folder=OUT)
    done = verify_model(request, builds, Console(file=io.StringIO()))
    return done.bits + done.reference_bits + len(done.events)


def image_table(name: str, builds: Builds, samples: int, console: Console) -> int:
    """Train and verify perceptrons for one machine, and print; the sum of mismatches."""
    cells = {}
    for column, row, recipe in track(perceptrons(name), description=f"MLP, {name}", console=console):
        train_image(OUT / "mlp.safetensors", network="mlp", recipe=recipe, epochs=EPOCHS, samples=SAMPLES)
        cells[row, column] = mismatches(OUT / "mlp.safetensors", name, builds, samples)
    return _print(f"MLP on {name}: mismatching bits over {samples} images", cells, console)


def lstm_table(builds: Builds, samples: int, folder: Path | None, console: Console) -> int:
    """Train and verify LSTMs on `speech`, and print; the sum of mismatches."""
    cells, inputs = {}, Format(bits=8, symmetric=True)
    forms = [Gates(asymmetric=a, shared=s) for a, s in product((False, True), repeat=2)]
    for gates, bits in track(list(product(forms, range(2, 9))), description="LSTM, speech", console=console):
        if gates.asymmetric and bits == 8:
            continue  # 9 bits, which the machine has not
        train_lstm(OUT / "lstm.safetensors", weights_format=Format(bits=bits, symmetric=True), input_format=inputs,
                   gates=gates, epochs=(4, 1, 1), folder=folder)
        cells[str(gates), f"W{bits}/A8"] = mismatches(OUT / "lstm.safetensors", "speech", builds, samples)
    return _print(f"LSTM on speech: mismatching bits over {samples} utterances", cells, console)


def _print(title: str, cells: dict[tuple[str, str], int], console: Console) -> int:
    rows, columns = (list(dict.fromkeys(key[place] for key in cells)) for place in (0, 1))
    columns.sort()
    table = Table("training", *columns, title=title)
    for row in rows:
        table.add_row(row, *(str(cells.get((row, column), "-")) for column in columns))
    console.print(table)
    return sum(cells.values())


def main(
    samples: Annotated[int, typer.Option(help="Of the test set, for each network.")] = 5,
    vowels: Annotated[Path | None, typer.Option(help="Folder of JapaneseVowels_TRAIN.ts.")] = None,
) -> None:
    """Train, verify and print; exit code 1 where a bit differs."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    OUT.mkdir(parents=True, exist_ok=True)
    with Builds(MachineKind.LIBRARY, [preset(name) for name in MACHINES], os.cpu_count() or 1) as builds:
        found = sum(image_table(name, builds, samples, console) for name in MACHINES)
        found += lstm_table(builds, samples, vowels, console)
    raise typer.Exit(0 if not found else 1)


if __name__ == "__main__":
    typer.run(main)
