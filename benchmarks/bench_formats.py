"""Weights of several formats beside each other: `nox -s bench_formats`.

The FP32 networks of the shipped MLP and the shipped ResNet become block floating point in blocks of 16, with inputs of
8 bits and weights of mantissas, of floats or of powers of two. Each is measured on all 10,000 test images in the
machine's own arithmetic, before and after a short training with quantisers (QAT). `--area` synthesises tile engines.
"""

import json
import math
import sys
import time
from functools import cache
from pathlib import Path
from typing import Annotated

import torch
import typer
from concord.benchmarks import synth
from concord.benchmarks.bench_block import lowered
from concord.lib.processes import side_by_side
from concord.net.model_file import load_model
from concord.net.ops.weighted import Weighted
from concord.net.quantize.choices import BlockRecipe
from concord.spec.numbers.formats import Format
from concord.train.lib.fit import cross_entropy, fit, reproducible
from concord.train.lib.networks import build
from concord.train.network.quantized_network import behind_quantizers
from concord.train.runs.image import BATCH, CALIBRATION, Images
from rich.console import Console
from rich.table import Table
from torch import nn

MODELS = Path(__file__).parents[1] / "data" / "models"
SHIPPED = {"mlp": "fashion-mlp-w4a4", "resnet-small": "fashion-resnet-w8"}  #: Model file of each network.
INPUT_BITS, RATE = 8, 0.01
WEIGHTS = {  #: Recipes by what an element is: mantissas, floats, powers of two.
    **{f"{bits} bits": {"weights_bits": bits} for bits in (8, 4)},
    "E4M3": {"weights_element": (4, 3), "exponents": (4, 4), "input_exponents": BlockRecipe().exponents},
    "E5M2": {"weights_element": (5, 2), "exponents": (4, 4), "input_exponents": (-6, 4)},  # exact in float64
    **{f"E{e}M{m}": {"weights_element": (e, m)} for e, m in ((2, 1), (3, 0), (2, 0))}}
OUT = Path("build/bench_formats")


@cache
def images(samples: int) -> Images:
    """The images; each process loads them once."""
    return Images.load(samples)


def shipped(network: str) -> nn.Module:
    """The FP32 network of a shipped model, whose batch normalisation is in its weights."""
    net = build(network, 0).eval()
    graph = load_model(MODELS / f"{SHIPPED[network]}.safetensors").graph
    operators = [node.op for node in graph.nodes if isinstance(node.op, Weighted)]
    weighted = [module for module in net.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    norms = iter([module for module in net.modules() if isinstance(module, nn.BatchNorm2d)])
    with torch.no_grad():
        for module, op in zip(weighted, operators, strict=True):
            weights, bias = (torch.from_numpy(values.copy()) for values in (op.weight, op.bias))
            module.weight.copy_(weights.view(module.weight.shape))
            if module.bias is None:  # the batch normalisation after it adds the bias, and changes nothing else
                norm = next(norms)
                norm.running_var.fill_(1)
                norm.weight.fill_(math.sqrt(1 + norm.eps))
                norm.bias.copy_(bias)
            else:
                module.bias.copy_(bias)
    return net


def run(network: str, name: str, samples: int, epochs: int) -> tuple[str, str, float, float]:
    """Quantise and train a network on one thread, and return its accuracies in percent before and after training."""
    reproducible(0)
    found, recipe = images(samples), BlockRecipe(input_bits=INPUT_BITS, **WEIGHTS[name])
    blocks = behind_quantizers(shipped(network), found.x[:CALIBRATION], recipe)
    before = lowered(blocks, found)
    fit(phase="QAT", net=blocks, loss=lambda index: cross_entropy(blocks(found.x[index]), found.labels[index]),
        optimiser=torch.optim.SGD(blocks.groups(RATE), momentum=0.9), count=samples, batch=BATCH, epochs=epochs, seed=0)
    return network, name, before, lowered(blocks, found)


def report(real: dict[str, float], runs: list[tuple], console: Console):
    """Print the accuracies of all networks."""
    table = Table("weights", "bits stored", title="Inputs of 8 bits in blocks of 16, accuracy in percent")
    for network in real:
        table.add_column(f"{network}, PTQ", justify="right")
        table.add_column(f"{network}, QAT", justify="right")
    table.add_row("FP32", "32", *(text for value in real.values() for text in (f"{value:.2f}", "")))
    made = {(network, name): figures for network, name, *figures in runs}
    for name, given in WEIGHTS.items():
        element = given.get("weights_element")
        bits = Format.floating(*element).code_bits if element else given["weights_bits"]
        table.add_row(name, str(bits), *(f"{value:.2f}" for network in real for value in made[network, name]))
    console.print(table)


def main(
    area: Annotated[bool, typer.Option("--area", help="Synthesise tile engines instead.")] = False,
    samples: Annotated[int, typer.Option(help="Number of training images.")] = 4_000,
    epochs: Annotated[int, typer.Option(help="Epochs of training with quantisers.")] = 1,
    processes: Annotated[int, typer.Option(help="Number of processes.")] = 2,
) -> None:
    """Quantise and train all networks, print a table, and write JSON."""
    console, began = Console(width=None if sys.stdout.isatty() else 110), time.perf_counter()
    if area:
        synth.report(console)
        return
    real = {network: 100 * images(samples).accuracy(shipped(network)) for network in SHIPPED}
    jobs = [(network, name, samples, epochs) for network in SHIPPED for name in WEIGHTS]
    runs = side_by_side("formats", run, jobs, console, processes)
    report(real, runs, console)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "runs.json").write_text(json.dumps({"fp32": real, "runs": runs}, indent=1))
    console.print(f"{time.perf_counter() - began:.0f} s; {OUT / 'runs.json'}")


if __name__ == "__main__":
    typer.run(main)
