"""Compare starting points of quantisation-aware training, and few-bit networks with Brevitas: `nox -s bench_train`.

Networks learn images of Fashion-MNIST in FP32, then with quantisers (QAT), and are measured on all 10,000 test images.
"""

import json
import sys
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import matplotlib
import numpy as np
import torch
import typer
from concord.benchmarks import peers
from concord.benchmarks.speed import report_quantized
from concord.lib.processes import side_by_side
from concord.net.quantize.recipe import ActivationTraining, WeightTraining
from concord.nnp.lib.curves import draw
from concord.train.lib.fit import reproducible
from concord.train.runs import compare_starts, image
from concord.train.runs.compare_starts import FIGURE, STARTS, Setting
from concord.train.runs.image import Images
from rich.console import Console
from rich.table import Table

matplotlib.use("Agg")
from matplotlib import pyplot

SAMPLES, EPOCHS, FLOAT_EPOCHS, SEEDS = 4_000, 3, 8, 3
FULL = 10_000, 4  #: Number of training images, and epochs of quantisation-aware training, with `--full`.
OUT = Path("build/bench_train")
#: Widths at which the ResNet-style network is compared, and the training methods there.
WIDTHS = (4, 3, 2)
PEER = "Brevitas"
WAYS = {
    "lsq, uniform": {"weights": WeightTraining.LSQ, "activations": ActivationTraining.UNIFORM},
    "lsq-odd, lsq": {"weights": WeightTraining.LSQ_ODD, "activations": ActivationTraining.LSQ},
    PEER: None}
NEAR = 0.5  #: Largest distance from FP32 in points, of the ResNet-style network with 4-bit weights and inputs.

Job = tuple[Setting, str, dict | None, int]


@cache
def images(samples: int) -> Images:
    """The images; each process loads them once."""
    return Images.load(samples)


def run(job: Job, samples: int, epochs: int) -> tuple[Job, float, list[float]]:
    """Run a job on one thread; return it, the accuracy of FP32, and those after each epoch, in percent."""
    setting, name, options, seed = job
    reproducible(seed)
    found = images(samples)
    net = image.trained(setting.network, found, seed, FLOAT_EPOCHS, OUT)
    if name == PEER:
        torch.use_deterministic_algorithms(False)  # Brevitas uses algorithms that are not deterministic
        peer = peers.brevitas(net, found.x[:image.CALIBRATION], setting.weights)
        curve = compare_starts.followed(peer, peer.parameters(), found, seed, epochs)
    else:
        curve = compare_starts.curve(net, setting.recipe(normalise=True, **options), found, seed, epochs)
    return job, 100 * found.accuracy(net.eval()), [100 * value for value in curve]


def prepare(network: str, seed: int, samples: int):
    """Train an FP32 network, and keep it for later jobs."""
    reproducible(seed)
    image.trained(network, images(samples), seed, FLOAT_EPOCHS, OUT)


def _record(job: Job, fp32: float, curve: list[float]) -> dict:
    """A result as JSON values."""
    return {"setting": str(job[0]), "way": job[1], "seed": job[3], "fp32": fp32, "curve": curve}


def curves(results: list, setting: Setting, name: str) -> list[list[float]]:
    """The curve of each seed, in the order of the seeds."""
    found = [(job[3], curve) for job, _, curve in results if (job[0], job[1]) == (setting, name)]
    return [curve for _, curve in sorted(found)]


def real(results: list, network: str) -> float:
    """Mean accuracy of an FP32 network over the seeds."""
    return float(np.mean(list({
        job[3]: value for job, value, _ in results if job[0].network == network}.values())))


def figure(results: list, console: Console) -> bool:
    """Print the seven settings of figure 11 of the publication, and return whether all goals are met."""
    table = Table("setting", "FP32", "start", "epoch 0", "epoch 1", "end", "each seed, end",
                  title="Figure 11, accuracy in percent, mean of seeds")
    met = True
    for setting in FIGURE:
        means = {}
        for name in STARTS:
            found = curves(results, setting, name)
            means[name] = mean = np.mean(found, axis=0)
            table.add_row(str(setting), f"{real(results, setting.network):.2f}", name, f"{mean[0]:.2f}",
                          f"{mean[1]:.2f}", f"{mean[-1]:.2f}", " ".join(f"{curve[-1]:.2f}" for curve in found))
        met &= all(means["PTQ"][epoch] > means["FP32"][epoch] for epoch in (0, 1, -1))
        if setting == Setting(network="resnet", weights=4, inputs=4):
            met &= real(results, "resnet") - means["PTQ"][-1] <= NEAR
    console.print(table)
    return bool(met)


def widths(results: list, console: Console) -> bool:
    """Print every training method at every width; return whether Brevitas is never better, and worse at few bits."""
    table = Table("ResNet-style", "way", "before", "end", "each seed, end", title="Few bits, accuracy in percent")
    ends, met = {}, True
    for bits in WIDTHS:
        setting = Setting(network="resnet", weights=bits, inputs=bits)
        for name in WAYS:
            found = curves(results, setting, name)
            if not found:
                continue
            ends[bits, name] = np.mean(found, axis=0)[-1]
            table.add_row(f"W{bits}/A{bits}", name, f"{np.mean(found, axis=0)[0]:.2f}", f"{ends[bits, name]:.2f}",
                          " ".join(f"{curve[-1]:.2f}" for curve in found))
        ours = max(ends[bits, name] for name in WAYS if name != PEER)
        met &= (bits, PEER) not in ends or ours >= ends[bits, PEER] + (bits == min(WIDTHS)) * 0.01
    console.print(table)
    return bool(met)


def picture(results: list, path: Path):
    """Draw accuracy against epoch, with lines for means and bands for 95 % confidence."""
    made, grid = pyplot.subplots(2, 4, figsize=(14, 6.5), layout="constrained")
    for setting, axes in zip(FIGURE, grid.flat, strict=False):
        draw(axes, str(setting), real(results, setting.network),
             {name: curves(results, setting, name) for name in STARTS})
    grid.flat[0].legend()
    grid.flat[-1].set_axis_off()
    made.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(made)


def main(
    speed: Annotated[bool, typer.Option("--speed", help="Measure a training step instead.")] = False,
    seeds: Annotated[int, typer.Option(help="Number of seeds.")] = SEEDS,
    samples: Annotated[int, typer.Option(help="Number of training images.")] = SAMPLES,
    epochs: Annotated[int, typer.Option(help="Epochs of quantisation-aware training.")] = EPOCHS,
    full: Annotated[bool, typer.Option("--full", help=f"Use {FULL[0]} training images and {FULL[1]} epochs.")] = False,
) -> None:
    """Train all networks, print tables, write a picture and JSON; the exit code is 1 if a goal is missed."""
    console = Console(width=None if sys.stdout.isatty() else 130)
    if speed:
        report_quantized(console)
        return
    if full:
        samples, epochs = FULL
    began = time.perf_counter()
    networks = sorted({setting.network for setting in FIGURE})
    side_by_side("FP32", prepare, [(name, seed, samples) for name in networks for seed in range(seeds)], console)
    ways = {name: options for name, options in WAYS.items() if name != PEER or find_spec("brevitas")}
    if PEER not in ways:
        console.print("Brevitas takes no part: pip install --group peers")
    jobs = [(Setting(network="resnet", weights=bits, inputs=bits), name, options, seed)  # the longest jobs come first
            for name, options in reversed(ways.items()) for bits in WIDTHS for seed in range(seeds)]
    jobs += [(setting, name, options, seed) for setting in FIGURE for seed in range(seeds)
             for name, options in STARTS.items()]
    OUT.mkdir(parents=True, exist_ok=True)
    with (OUT / "runs.jsonl").open("w") as lines:
        results = side_by_side("after quantisers", run, [(job, samples, epochs) for job in jobs], console,
                               each=lambda result: print(json.dumps(_record(*result)), file=lines, flush=True))
    met = figure(results, console)
    met &= widths(results, console)
    picture(results, OUT / "figure11.png")
    console.print(f"{time.perf_counter() - began:.0f} s; {OUT / 'figure11.png'}, {OUT / 'runs.jsonl'}")
    raise typer.Exit(0 if met else 1)


if __name__ == "__main__":
    typer.run(main)
