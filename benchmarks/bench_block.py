"""Block floating point beside FP32: `nox -s bench_block`.

A ResNet-style network learns 10,000 images of Fashion-MNIST in FP32, becomes block floating point in blocks of 16, and
is measured on all 10,000 test images in the machine's own arithmetic: without training, and after training with
quantisers (QAT). `--speed` times the quantiser instead.
"""

import json
import sys
import time
from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from concord.benchmarks.speed import report_blocks
from concord.lib.processes import side_by_side
from concord.net.quantize.choices import BlockRecipe
from concord.train.lib.fit import cross_entropy, fit, reproducible, share
from concord.train.network.quantized_network import QuantizedNetwork, behind_quantizers
from concord.train.runs import image
from concord.train.runs.image import BATCH, CALIBRATION, Images
from rich.console import Console
from rich.table import Table

NETWORK, SAMPLES, FLOAT_EPOCHS, EPOCHS, RATE = "resnet", 10_000, 8, 4, 0.01
BITS = (8, 6, 5, 4, 3)
OUT = Path("build/bench_block")


@cache
def images(samples: int) -> Images:
    """The images; each process loads them once."""
    return Images.load(samples)


def prepare(seed: int, samples: int) -> tuple[int, float]:
    """Train the FP32 network, keep its parameters for later jobs, and return its accuracy in percent."""
    reproducible(seed)
    net = image.trained(NETWORK, images(samples), seed, FLOAT_EPOCHS, OUT)
    return seed, 100 * images(samples).accuracy(net)


def run(seed: int, bits: int, samples: int, epochs: int) -> tuple[int, int, float, float]:
    """Quantise and train a network on one thread, and return its accuracies in percent before and after training."""
    reproducible(seed)
    found = images(samples)
    net = image.trained(NETWORK, found, seed, FLOAT_EPOCHS, OUT)
    blocks = behind_quantizers(net, found.x[:CALIBRATION], BlockRecipe(weights_bits=bits, input_bits=bits))
    before = lowered(blocks, found)
    fit(phase="QAT", net=blocks, loss=lambda index: cross_entropy(blocks(found.x[index]), found.labels[index]),
        optimiser=torch.optim.SGD(blocks.groups(RATE), momentum=0.9), count=samples, batch=BATCH, epochs=epochs,
        seed=seed)
    return seed, bits, before, lowered(blocks, found)


def lowered(net: QuantizedNetwork, found: Images) -> float:
    """Accuracy in percent in golden arithmetic; batches are small, so that they stay in a core's cache."""
    with torch.no_grad():
        outputs = torch.cat([net(part, lowered=True) for part in found.test_x.split(BATCH)])
    return 100 * share(outputs.argmax(1), found.test_labels)


def report(real: list[tuple], runs: list[tuple], console: Console):
    """Print the mean accuracies over the seeds, and those of each seed."""
    table = Table("mantissas", "not retrained", "after QAT", "each seed, not retrained", "each seed, after QAT",
                  title="ResNet-style in block floating point, accuracy in percent")
    values = [value for _, value in real]
    table.add_row("FP32", f"{np.mean(values):.2f}", "", " ".join(f"{value:.2f}" for value in values), "")
    for bits in BITS:
        before, after = zip(*(run[2:] for run in runs if run[1] == bits), strict=True)
        table.add_row(f"{bits} bits", f"{np.mean(before):.2f}", f"{np.mean(after):.2f}",
                      *(" ".join(f"{value:.2f}" for value in each) for each in (before, after)))
    console.print(table)


def main(
    speed: Annotated[bool, typer.Option("--speed", help="Time the quantiser instead.")] = False,
    seeds: Annotated[int, typer.Option(help="Number of seeds.")] = 2,
    samples: Annotated[int, typer.Option(help="Number of training images.")] = SAMPLES,
    epochs: Annotated[int, typer.Option(help="Epochs of training with quantisers.")] = EPOCHS,
    processes: Annotated[int, typer.Option(help="Number of processes.")] = 2,
) -> None:
    """Train all networks, print a table, and write JSON."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    if speed:
        report_blocks(console)
        return
    began = time.perf_counter()
    real = sorted(side_by_side("FP32", prepare, [(seed, samples) for seed in range(seeds)], console, processes))
    jobs = [(seed, bits, samples, epochs) for seed in range(seeds) for bits in BITS]
    runs = sorted(side_by_side("block floating point", run, jobs, console, processes))
    report(real, runs, console)
    (OUT / "runs.json").write_text(json.dumps(
        {"fp32": real, "runs": [dict(zip(("seed", "bits", "before", "after"), run, strict=True)) for run in runs]},
        indent=1))
    console.print(f"{time.perf_counter() - began:.0f} s; {OUT / 'runs.json'}")


if __name__ == "__main__":
    typer.run(main)
