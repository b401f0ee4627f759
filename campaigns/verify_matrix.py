"""Train networks by every method that a machine can run, and verify them on RTL: `nox -s verify_matrix`.

Perceptrons and LSTMs have every width; convolutional networks have the largest one, in integers and in blocks.
"""

import io
import os
import random
import sys
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from concord.lib.processes import side_by_side
from concord.lib.progress import lines
from concord.net.quantize.choices import BlockRecipe
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.recipe import ActivationTraining, Gates, Recipe, WeightTraining
from concord.net.quantize.widths import NetworkArithmetic
from concord.sim.machines.kinds import MachineKind
from concord.spec.machine.config import preset
from concord.spec.numbers.formats import Format
from concord.train.lib import networks
from concord.train.lib.networks import CLASSES, Branches, Residual, convolution
from concord.train.runs.image import train_image
from concord.train.runs.recurrent import train_recurrent
from concord.verification.batches import Builds
from concord.verification.inputs import InputSource
from concord.verification.verification import prepare, verify_model
from concord.verification.verified import Request
from rich.console import Console
from rich.table import Table
from torch import nn

OUT = Path("build/verify_matrix")
#: Presets, and the bits of weights and of input codes that they can run.
MACHINES = {"ulx3s": (4, 4), "speech": (8, 8), "vision": (8, 8)}
#: Presets for perceptrons, and for convolutional networks.
OF_PERCEPTRONS, OF_IMAGES = ("ulx3s", "speech"), ("ulx3s", "vision")
EPOCHS, LSTM_EPOCHS, SAMPLES = (1, 1, 1), (4, 1, 1), 1000


def resnet() -> nn.Sequential:
    """Two residual blocks, one with a convolution around it."""
    body = nn.Sequential(convolution(9, 9, 3), convolution(9, 9, 3, relu=False))
    wider = nn.Sequential(convolution(9, 17, 3, 2), convolution(17, 17, 3, relu=False))
    return nn.Sequential(
        convolution(1, 9, 3, 3), Residual(body, nn.Identity(), relu=True),
        Residual(wider, convolution(9, 17, 1, 2, relu=False), relu=True), *_mean(17))


def mobilenet() -> nn.Sequential:
    """Two inverted bottlenecks, depthwise inside, one of which has a way around it."""
    def bottleneck(inputs: int, outputs: int, stride: int) -> nn.Sequential:
        wide = 3 * inputs
        return nn.Sequential(convolution(inputs, wide, 1), convolution(wide, wide, 3, stride, groups=wide),
                             convolution(wide, outputs, 1, relu=False))

    return nn.Sequential(
        convolution(1, 8, 3, 3), bottleneck(8, 12, 2), Residual(bottleneck(12, 12, 1), nn.Identity(), relu=False),
        convolution(12, 40, 1), *_mean(40))


def inception() -> nn.Sequential:
    """Branches side by side, a maximum of what they make, and a flattened image."""
    pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), convolution(6, 5, 1))
    block = Branches(convolution(6, 7, 1), nn.Sequential(convolution(6, 4, 1), convolution(4, 7, 3)), pooled)
    return nn.Sequential(
        convolution(1, 6, 3, 4), block, nn.MaxPool2d(2), convolution(19, 12, 3), nn.Flatten(),
        nn.Linear(12 * 3 * 3, CLASSES))


def _mean(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)]


#: Networks by their style.
STYLES = {"ResNet": resnet, "MobileNet": mobilenet, "Inception": inception}


def small() -> nn.Module:
    """A perceptron that fits its machines."""
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


def convolutional(name: str) -> list[tuple[str, str, Recipe | BlockRecipe]]:
    """Style, row and recipe of each convolutional network for a machine."""
    bits, inputs = MACHINES[name]
    recipes: dict[str, Recipe | BlockRecipe] = {
        f"{weights}, {activations}": Recipe(
            weights_bits=bits - weights.odd, input_bits=inputs, symmetric=(True, True), weights=weights,
            activations=activations)
        for weights, activations in product(WeightTraining, ActivationTraining)}
    recipes["block floating point"] = QuantizationOptions(preset=name, arithmetic=NetworkArithmetic.BFP).recipe()
    return [(style, row, recipe) for style in STYLES for row, recipe in recipes.items()]


@cache
def builds(*names: str) -> Builds:
    """The builds of some machines; each process makes or finds them once, and waits until they are complete."""
    with Builds(MachineKind.LIBRARY, [(preset(name),) for name in names]) as found:
        for name in names:
            found.wait([preset(name)], lines(Console(stderr=True)))
    return found


def mismatches(path: Path, name: str, samples: int, data: Path | None = None) -> int:
    """Number of bits and event counters that differ on the simulated machine."""
    console = Console(file=io.StringIO())
    source = InputSource(inputs=None, data=None if data is None else str(data), samples=str(samples), first=0,
                         default=samples)
    request = Request(path=path, location=str(path), source=source, preset=name, kind=MachineKind.LIBRARY, jobs=1,
                      folder=OUT, waves=False)
    done = verify_model(prepare(request, console), builds(name), console)
    return done.bits + (done.reference_bits or 0) + len(done.events)


def perceptron(name: str, row: str, column: str, recipe: Recipe, samples: int) -> tuple[str, str, int]:
    """Train and verify a perceptron; return its row and column in the table, and its number of mismatches."""
    path = OUT / f"mlp-{os.getpid()}.safetensors"
    train_image(path, network="concord.campaigns.verify_matrix:small", recipe=recipe, epochs=EPOCHS, samples=SAMPLES)
    return row, column, mismatches(path, name, samples)


def images(name: str, row: str, style: str, recipe: Recipe | BlockRecipe, samples: int) -> tuple[str, str, int]:
    """Train and verify a convolutional network; return its row and column in the table, and its mismatches."""
    path = OUT / f"cnn-{os.getpid()}.safetensors"
    network = f"concord.campaigns.verify_matrix:{STYLES[style].__name__}"
    train_image(path, network=network, recipe=recipe, epochs=EPOCHS, samples=SAMPLES)
    return row, style, mismatches(path, name, samples)


def lstm(name: str, gates: Gates, bits: int, folder: Path | None, samples: int) -> tuple[str, str, int]:
    """Train and verify an LSTM; return its row and column in the table, and its number of mismatches."""
    path = OUT / f"lstm-{os.getpid()}.safetensors"
    train_recurrent(path, weights_format=Format(bits=bits, symmetric=True), input_format=Format(bits=8, symmetric=True),
                    gates=gates, epochs=LSTM_EPOCHS, folder=folder)
    return str(gates), f"W{bits}/A8", mismatches(path, name, samples, folder)


def lstms() -> list[tuple[Gates, int]]:
    """Gate settings and widths. Asymmetric 8-bit weights need 9 bits, which the machine does not have."""
    forms = [Gates(asymmetric=a, shared=s) for a, s in product((False, True), repeat=2)]
    return [(gates, bits) for gates in forms for bits in range(2, 9 - gates.asymmetric)]


def table(title: str, cells: list[tuple[str, str, int]], console: Console) -> int:
    """Print a table, and return the sum of its mismatches."""
    found = {(row, column): value for row, column, value in cells}
    rows, columns = (sorted({key[axis] for key in found}) for axis in (0, 1))
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
    jobs: list[tuple[str, Callable, tuple]] = [(f"MLP on {name}", perceptron, (name, row, column, recipe, samples))
            for name in OF_PERCEPTRONS for column, row, recipe in perceptrons(name)]
    jobs += [("LSTM on speech", lstm, ("speech", *kind, vowels, samples)) for kind in lstms()]
    jobs += [(f"CNN on {name}", images, (name, row, style, recipe, samples))
             for name in OF_IMAGES for style, row, recipe in convolutional(name)]
    if networks is not None:
        jobs = random.Random(seed).sample(jobs, min(networks, len(jobs)))
    builds(*dict.fromkeys(arguments[0] for _, _, arguments in jobs))  # made once, before two processes need them
    found = 0
    for title, call in dict.fromkeys((title, call) for title, call, _ in jobs):
        cells = side_by_side(title, call, [arguments for name, _, arguments in jobs if name == title], console)
        found += table(f"{title}: mismatching bits over {samples} samples", cells, console)
    console.print(f"{len(jobs)} networks, {found} mismatching bits")
    raise typer.Exit(0 if not found else 1)


if __name__ == "__main__":
    typer.run(main)
