"""Accuracy of networks for narrow accumulators compared with FP32: `nox -s bench_overflow`.

An MLP 784-128-64-10 and a ResNet-style network of convolutions learn Fashion-MNIST, are quantised to integers, and run
on accumulators that wrap: after quantisation; after their ranges were enlarged until no sum of the calibration set
overflows; and after quantisation-aware training (QAT) that keeps it so. Every partial sum counts, one product after
another. Accuracies are those of the 10,000 test images in the machine's arithmetic, wrapping included. On the first
images, the bits are compared with golden's.
"""

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache, reduce
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from concord.lib.processes import side_by_side
from concord.net.layer_overflow import Count, Widths, wrapped
from concord.net.model import Model, Provenance
from concord.net.quantize.recipe import Recipe
from concord.train.lib import data
from concord.train.lib.export import patterns
from concord.train.lib.fit import cross_entropy, reproducible, share
from concord.train.network.quantized_network import QuantizedNetwork, behind_quantizers
from concord.train.overflow.predictor import Predictor, kind
from concord.train.overflow.record import STEPS
from concord.train.runs import image
from concord.train.runs.image import BATCH, CALIBRATION, Images
from concord.train.runs.qat_training import train_quantized
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentPlan:
    """The experiments with one network.

    Attributes:
        title:    Name in the table.
        settings: Pairs of the bits of weights and activations, and the bits of the accumulator.
        samples:  Number of training images.
        batch:    Batch size of QAT.
        epochs:   Epochs of FP32 training, of QAT, and of QAT in the machine's arithmetic.
        counted:  Number of test images on which overflows are counted.
    """

    title: str
    settings: tuple[tuple[int, int], ...]
    samples: int
    batch: int
    epochs: tuple[int, int, int]
    counted: int


PLANS = {
    "resnet": ExperimentPlan(title="ResNet-style", settings=((8, 16), (8, 14)), samples=20_000, batch=BATCH,
                             epochs=(5, 3, 1), counted=1_000),
    "mlp": ExperimentPlan(
        title="MLP", settings=tuple((bits, accumulator) for bits in (8, 4) for accumulator in (16, 14, 12)),
        samples=60_000, batch=128, epochs=(10, 4, 1), counted=10_000),
}
#: Largest loss against FP32 in points, in the mean over the seeds, by the bits of the accumulator.
NEAR, BINDING = 0.5, (16, 14)
COMPARED = 50  #: Number of test images on which the bits are compared with golden's.
OUT = Path("build/bench_overflow")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentStage:
    """The state of a network after one step of an experiment.

    Attributes:
        accuracy: Accuracy on the test set in percent.
        events:   Overflow events on the calibration set.
        needed:   Accumulator bits that the calibration set needs.
    """

    accuracy: float
    events: int
    needed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class OverflowResult:
    """The results of one network.

    Attributes:
        network, bits, accumulator, seed: Network and setting that were trained.
        fp32:                       Accuracy of the FP32 network on the test set, in percent.
        before, enlarged, trained:  State after PTQ, with enlarged ranges, and after QAT.
        test_events, test_additions: Overflow events of the trained network on test images, and number of partial sums.
        record:                     Changes of the ranges.
    """

    network: str
    bits: int
    accumulator: int
    seed: int
    fp32: float
    before: ExperimentStage
    enlarged: ExperimentStage
    trained: ExperimentStage
    test_events: int
    test_additions: int
    record: str


@cache
def images(samples: int, folder: Path | None) -> Images:
    """The images; each process loads them once."""
    return Images.load(samples, folder)


def prepare(network: str, seed: int, folder: Path | None):
    """Train an FP32 network, and keep it for `quantize`."""
    reproducible(seed)
    image.trained(network, images(PLANS[network].samples, folder), seed, PLANS[network].epochs[0], OUT)


def quantize(network: str, bits: int, accumulator: int, seed: int, folder: Path | None) -> OverflowResult:
    """Quantise an FP32 network for an accumulator and retrain it."""
    reproducible(seed)
    plan = PLANS[network]
    found = images(plan.samples, folder)
    net = image.trained(network, found, seed, plan.epochs[0], OUT)
    calibration = found.x[:CALIBRATION]
    qat = behind_quantizers(net, calibration, Recipe(weights_bits=bits, input_bits=bits, symmetric=(True, True)))
    predictor = Predictor(qat, calibration, Widths(sum_bits=accumulator), STEPS[kind(qat)])
    before = stage(predictor, found)
    predictor.run()
    enlarged = stage(predictor, found)
    rate = predictor.rate(0.01)
    for lowered, epochs, at in ((False, plan.epochs[1], rate), (True, plan.epochs[2], rate / 10)):
        def loss(index, lowered=lowered):
            return cross_entropy(qat(found.x[index], lowered=lowered), found.labels[index])

        train_quantized(
            qat, loss, len(found.x), lowered=lowered, epochs=epochs, rate=at, seed=seed, batch=plan.batch,
            predictor=predictor)
    test = counts(predictor, found.test_x[:plan.counted])
    return OverflowResult(
        network=network, bits=bits, accumulator=accumulator, seed=seed, fp32=100 * found.accuracy(net), before=before,
        enlarged=enlarged, trained=stage(predictor, found), test_events=test.number, test_additions=test.additions,
        record=str(predictor.record))


def counts(predictor: Predictor, inputs: torch.Tensor | None = None) -> Count:
    """Overflow counts of all layers, on the calibration set or on other inputs."""
    return reduce(Count.beside, (predictor.count(name, inputs) for name in predictor.network.layers))


def stage(predictor: Predictor, found: Images) -> ExperimentStage:
    """Measure a network whose sums wrap.

    Raises:
        RuntimeError: golden and PyTorch differ in a bit.
    """
    net, bits = predictor.network, predictor.widths.sum_bits
    for layer in net.layers.values():
        layer.sum_bits = bits
    outputs = found.outputs(net, lowered=True)
    for layer in net.layers.values():
        layer.sum_bits = None
    golden = wrapped(_model(net), patterns(found.test_x[:COMPARED].flatten(1)), bits)
    if (different := int((golden != patterns(outputs[:COMPARED])).sum())):
        raise RuntimeError(f"golden and PyTorch differ in {different} of {golden.size} outputs; report this defect")
    count = counts(predictor)
    return ExperimentStage(accuracy=100 * share(outputs.argmax(1), found.test_labels), events=count.number,
                           needed=count.bits)


def _model(net: QuantizedNetwork) -> Model:
    """The model file's form of the network, which golden runs."""
    (layers, sources), none = net.lower(), np.zeros(0, np.uint8)
    made = Provenance(command="nox -s bench_overflow", method="", seed=0, fp32_accuracy=0, quantized_accuracy=0,
                      golden_accuracy=0)
    return Model(
        name="bench", data="fashion-mnist", preprocessing="", classes=(), layers=layers, sources=sources,
        provenance=made, fp32_predictions=none, quantized_predictions=none)


def all_runs(networks: Iterable[str], folder: Path | None, seeds: int, console: Console) -> list[OverflowResult]:
    """Run every setting of every network and seed, in two processes."""
    first = [(name, seed, folder) for name in networks for seed in range(seeds)]
    side_by_side("FP32", prepare, first, console)
    runs = side_by_side("in narrow accumulators", quantize, [
        (name, *setting, seed, folder) for name, seed, _ in first for setting in PLANS[name].settings], console)
    return sorted(runs, key=lambda run: (run.network, -run.bits, -run.accumulator, run.seed))


def report(runs: list[OverflowResult], console: Console) -> bool:
    """Print the means over the seeds and the events of all seeds, and return whether all goals are met."""
    table = Table(title="Fashion-MNIST, test accuracy in percent on sums that wrap", title_justify="left")
    for name in ("network", "weights, inputs", "sums", "FP32", "before", "enlarged", "after QAT", "- FP32",
                 "events before", "enlarged", "after QAT", "test images", "events", "share", "goal"):
        table.add_column(name, justify="right")
    met = True
    for network, bits, accumulator in dict.fromkeys((run.network, run.bits, run.accumulator) for run in runs):
        found = [run for run in runs if (run.network, run.bits, run.accumulator) == (network, bits, accumulator)]
        stages = [[getattr(run, name) for run in found] for name in ("before", "enlarged", "trained")]
        fp32, *accuracies = (float(np.mean(values)) for values in (
            [run.fp32 for run in found], *([one.accuracy for one in same] for same in stages)))
        events = [sum(one.events for one in same) for same in stages]
        test, points = sum(run.test_events for run in found), accuracies[-1] - fp32
        binding = accumulator in BINDING
        met &= not any(events[1:]) and (not binding or points >= -NEAR)
        table.add_row(
            PLANS[network].title, f"{bits} bits", f"{accumulator} bits", *(f"{v:.2f}" for v in (fp32, *accuracies)),
            f"{points:+.2f}", *(f"{number:,}" for number in events), f"{PLANS[network].counted:,}", f"{test:,}",
            f"{test / sum(run.test_additions for run in found):.1e}", f"-{NEAR}, 0 events" if binding else "0 events")
    console.print(table)
    for run in runs:
        console.print(f"{run.network}, {run.bits} bits, seed {run.seed}: {run.record}", highlight=False)
    return met


def main(
    network: Annotated[list[str] | None, typer.Option(help=" or ".join(PLANS), show_default="all")] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds.", min=1)] = 3,
    folder: Annotated[Path | None, typer.Option("--data", help="Folder of the training images.")] = None,
) -> None:
    """Train all networks, print the table, and write JSON; the exit code is 1 if a goal is missed."""
    if unknown := set(network or ()) - set(PLANS):
        raise typer.BadParameter(f"there is no network {min(unknown)!r}: choose {' or '.join(PLANS)}")
    console = Console(width=None if sys.stdout.isatty() else 200)
    began = time.perf_counter()
    data.fashion_mnist(folder)  # this raises an error about missing data before processes start
    runs = all_runs(network or PLANS, folder, seeds, console)
    met = report(runs, console)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "runs.json").write_text(json.dumps([asdict(run) for run in runs], indent=1))
    console.print(f"{time.perf_counter() - began:.0f} s; {OUT / 'runs.json'}")
    raise typer.Exit(0 if met else 1)


if __name__ == "__main__":
    typer.run(main)
