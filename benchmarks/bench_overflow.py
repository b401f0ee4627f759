"""Accuracy of networks for narrow accumulators compared with FP32: `nox -s bench_overflow`.

An MLP 784-128-64-10 and a ResNet-style network learn Fashion-MNIST, recurrent classifiers of 32 cells learn
JapaneseVowels. They are quantised to integers, and run in golden arithmetic on accumulators that wrap: after
quantisation; after their ranges were enlarged until no sum of the calibration set overflows; and after
quantisation-aware training (QAT) that keeps it so. Every partial sum counts, one product after another. `--share`
compares shares of the growth that inputs take, from which the defaults of each kind of network follow.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial, reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import torch
import typer
from concord.datasets.samples import Samples
from concord.frontends.onnx.read import read
from concord.lib.processes import side_by_side
from concord.net import network as golden
from concord.net.cells.registry import CELLS
from concord.net.graph import Graph
from concord.net.layer_overflow import Count, wrapped
from concord.net.model import Model, Provenance
from concord.net.quantize.choices import Choices
from concord.net.quantize.recipe import Recipe
from concord.train.lib import data
from concord.train.lib.export import patterns
from concord.train.lib.fit import cross_entropy, fit, reproducible, share
from concord.train.lib.networks import CLASSES
from concord.train.lib.samples import SampleTensors
from concord.train.network.quantized_network import QuantizedNetwork, behind_quantizers
from concord.train.overflow.options import OverflowOptions
from concord.train.overflow.predictor import Predictor, kind
from concord.train.runs import image, recurrent
from concord.train.runs.image import BATCH, CALIBRATION, Images
from concord.train.runs.qat_training import train_quantized
from rich.console import Console
from rich.table import Table
from torch import nn


@dataclass(frozen=True, slots=True)
class FloatNetwork:
    """A trained FP32 network with its samples, and the samples that set its ranges."""

    network: nn.Module | Graph
    train: SampleTensors
    test: SampleTensors
    calibration: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentPlan:
    """The experiments with one network.

    Attributes:
        title:    Name in the table.
        make:     Function of a plan, a seed and a folder that trains the FP32 network.
        settings: Pairs of the bits of weights and activations, and the bits of the accumulator.
        samples:  Number of training samples, at most.
        batch:    Batch size of QAT.
        rates:    Learning rates of QAT, and of QAT in the machine's arithmetic.
        epochs:   Epochs of FP32 training, of QAT, and of QAT in the machine's arithmetic.
        counted:  Number of test samples that are measured, at most.
    """

    title: str
    make: Callable
    settings: tuple[tuple[int, int], ...]
    samples: int = 60_000
    batch: int = BATCH
    rates: tuple[float, float] = (0.01, 0.001)
    epochs: tuple[int, int, int]
    counted: int = 10_000


def images(name: str, plan: ExperimentPlan, seed: int, folder: Path | None) -> FloatNetwork:
    """An FP32 network for images, from a file if it has been trained before."""
    found = Images.load(plan.samples, folder)
    net = image.trained(name, found, seed, plan.epochs[0], OUT)
    train, test = (SampleTensors(x=x, lengths=None, samples=Samples(
        inputs=patterns(x.flatten(1)), lengths=None, labels=labels.numpy(), classes=()))
        for x, labels in ((found.x, found.labels), (found.test_x[:plan.counted], found.test_labels[:plan.counted])))
    return FloatNetwork(net, train, test, CALIBRATION)


def vowels(cell: str, plan: ExperimentPlan, seed: int, folder: Path | None) -> FloatNetwork:
    """An FP32 recurrent classifier."""
    sets = data.vowel_sets(folder)
    net = recurrent.train_float(sets.train, (32,), epochs=plan.epochs[0], seed=seed, cell=CELLS[cell])
    return FloatNetwork(net.graph(), SampleTensors.of(sets.train), SampleTensors.of(sets.test), len(sets.train))


class GraphClassifier(nn.Module):
    """Two graph convolutions A (x W) and a dense layer.

    The nodes are the 49 patches of 4 x 4 pixels of an image. A patch reads itself and its neighbours with the weights
    of Kipf and Welling (2017), D**-1/2 (A + 1) D**-1/2.
    """

    def __init__(self, features: int = 4):
        super().__init__()
        row, column = np.divmod(np.arange(49), 7)
        near = (np.abs(row[:, None] - row) + np.abs(column[:, None] - column) <= 1).astype(np.float32)
        scale = near.sum(1) ** -0.5
        self.register_buffer("graph", torch.from_numpy(scale[:, None] * near * scale))
        self.one, self.two = nn.Linear(16, features), nn.Linear(features, features)
        self.last = nn.Linear(49 * features, CLASSES)

    def forward(self, x):
        """float32[samples, 10] of float32[samples, 49, 16]."""
        x = torch.relu(self.graph @ self.one(x))
        return self.last(torch.relu(self.graph @ self.two(x)).flatten(1))


def graphs(plan: ExperimentPlan, seed: int, folder: Path | None) -> FloatNetwork:
    """An FP32 network of graph convolutions, by way of a file in ONNX."""
    found = Images.load(plan.samples, folder)
    x, test = (part.view(-1, 7, 4, 7, 4).transpose(2, 3).reshape(-1, 49, 16) for part in (found.x, found.test_x))
    net = GraphClassifier()
    fit(phase="FP32 training", net=net, loss=lambda index: cross_entropy(net(x[index]), found.labels[index]),
        optimiser=torch.optim.Adam(net.parameters(), lr=0.005), count=len(x), batch=BATCH, epochs=plan.epochs[0],
        seed=seed)
    with TemporaryDirectory() as exported:
        torch.onnx.export(net.eval(), x[:1], f"{exported}/g.onnx", dynamo=False)
        imported = read(f"{exported}/g.onnx")
    order = np.argsort(imported.numbers[0].reshape(-1))

    def samples(part: torch.Tensor, labels: torch.Tensor) -> SampleTensors:
        flat = part.flatten(1)[:, order]
        return SampleTensors(x=flat.view(-1, *imported.network.shape), lengths=None, samples=Samples(
            inputs=patterns(flat), lengths=None, labels=labels.numpy(), classes=()))

    return FloatNetwork(imported.network, samples(x, found.labels),
                        samples(test[:plan.counted], found.test_labels[:plan.counted]), CALIBRATION)


VOWELS = {"settings": ((8, 16), (8, 14), (8, 12)), "epochs": (80, 6, 2), "batch": 30, "rates": (5e-4, 1e-4)}
PLANS = {
    "resnet": ExperimentPlan(title="ResNet-style", make=partial(images, "resnet"), settings=((8, 16), (8, 14)),
                             samples=20_000, epochs=(5, 3, 1), counted=1_000),
    "mlp": ExperimentPlan(
        title="MLP", make=partial(images, "mlp"), settings=tuple(
            (bits, accumulator) for bits in (8, 4) for accumulator in (16, 14, 12)), batch=128, epochs=(10, 4, 1)),
    **{name: ExperimentPlan(title=CELLS[name].title, make=partial(vowels, name), **VOWELS)
       for name in ("rnn", "lstm", "gru")},
    "gcn": ExperimentPlan(title="graph convolutions", make=partial(graphs), settings=((8, 16), (8, 14), (8, 12)),
                          epochs=(10, 4, 1)),
}
#: Largest loss against FP32 in points, in the mean over the seeds, by the bits of the accumulator.
NEAR, BINDING = 1.0, (16, 14)
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
        network, bits, accumulator, share, seed: Network and setting that were trained.
        fp32:                       Accuracy of the FP32 network on the test set, in percent.
        before, enlarged, trained:  State after PTQ, with enlarged ranges, and after QAT.
        test_events, test_additions: Overflow events of the trained network on test samples, and number of partial sums.
        record:                     Changes of the ranges.
    """

    network: str
    bits: int
    accumulator: int
    share: float | None
    seed: int
    fp32: float
    before: ExperimentStage
    enlarged: ExperimentStage
    trained: ExperimentStage
    test_events: int
    test_additions: int
    record: str


@cache
def float_network(network: str, seed: int, folder: Path | None) -> FloatNetwork:
    """The FP32 network; each process makes it once."""
    reproducible(seed)
    return PLANS[network].make(PLANS[network], seed, folder)


def quantize(network: str, bits: int, accumulator: int, share_: float | None, seed: int, folder: Path | None
             ) -> OverflowResult:
    """Quantise an FP32 network for an accumulator and retrain it."""
    found, plan = float_network(network, seed, folder), PLANS[network]
    reproducible(seed)
    x, lengths = found.train.at(torch.arange(min(found.calibration, len(found.train))))
    qat = behind_quantizers(found.network, x, Choices(recipe=Recipe(
        weights_bits=bits, input_bits=bits, symmetric=(True, True))), lengths)
    options = OverflowOptions(accumulator=accumulator, overflow_share=share_)
    predictor = Predictor(qat, x, options.widths, options.steps(kind(qat)), lengths)
    before = stage(predictor, found.test)
    predictor.run()
    enlarged = stage(predictor, found.test)
    labels = torch.from_numpy(np.asarray(found.train.samples.labels, np.int64))
    for lowered, epochs, rate in zip((False, True), plan.epochs[1:], plan.rates, strict=True):
        train_quantized(
            qat, lambda index, mode=lowered: cross_entropy(qat(*found.train.at(index), lowered=mode), labels[index]),
            len(found.train), lowered=lowered, epochs=epochs, rate=predictor.rate(rate), seed=seed, batch=plan.batch,
            predictor=predictor)
    test = counts(predictor, found.test)
    return OverflowResult(
        network=network, bits=bits, accumulator=accumulator, share=share_, seed=seed, fp32=fp32(found), before=before,
        enlarged=enlarged, trained=stage(predictor, found.test), test_events=test.number, test_additions=test.additions,
        record=str(predictor.record))


def fp32(found: FloatNetwork) -> float:
    """Accuracy of the FP32 network on the test set, in percent."""
    test, net = found.test, found.network
    with torch.no_grad():
        made = net.run(test.x.numpy(), test.samples.lengths) if isinstance(net, Graph) else torch.cat(
            [net(part) for part in test.x.split(image.MEASURED)])
    return 100 * share(np.asarray(made).argmax(1), test.samples.labels)


def counts(predictor: Predictor, test: SampleTensors | None = None) -> Count:
    """Overflow counts of all products, on the calibration set or on test samples."""
    given = (None, None) if test is None else (test.x, test.lengths)
    return reduce(Count.beside, (predictor.count(name, *given) for name in predictor.factors))


def stage(predictor: Predictor, test: SampleTensors) -> ExperimentStage:
    """Measure a network whose sums wrap."""
    outputs = wrapped(_model(predictor.network), test.samples.inputs, predictor.widths.sum_bits, test.samples.lengths)
    count = counts(predictor)
    return ExperimentStage(accuracy=100 * share(golden.classes(outputs), test.samples.labels), events=count.number,
                           needed=count.bits)


def _model(net: QuantizedNetwork) -> Model:
    """The model file's form of the network, which golden runs."""
    (layers, sources), none = net.lower(), np.zeros(0, np.uint8)
    made = Provenance(command="nox -s bench_overflow", method="", seed=0, fp32_accuracy=0, quantized_accuracy=0,
                      golden_accuracy=0)
    return Model(
        name="bench", data="", preprocessing="", classes=(), layers=layers, sources=sources,
        provenance=made, fp32_predictions=none, quantized_predictions=none)


def all_runs(networks: Iterable[str], shares: Sequence[float | None], widths: Sequence[int], folders: Sequence,
             seeds: int, console: Console) -> list[OverflowResult]:
    """Run every setting of every network, share and seed, in two processes."""
    runs = side_by_side("in narrow accumulators", quantize, [
        (name, *setting, one, seed, folders[PLANS[name].make.func is vowels])
        for name in networks for seed in range(seeds) for setting in PLANS[name].settings
        if not widths or setting[1] in widths for one in shares], console)
    return sorted(runs, key=lambda run: (run.network, -run.bits, -run.accumulator, str(run.share), run.seed))


def report(runs: list[OverflowResult], console: Console) -> bool:
    """Print the means over the seeds and the events of all seeds, and return whether all goals are met."""
    table = Table(title="Test accuracy in percent on sums that wrap", title_justify="left")
    for name in ("network", "weights, inputs", "sums", "share", "FP32", "before", "enlarged", "after QAT", "- FP32",
                 "events before", "enlarged", "after QAT", "test events", "of sums", "goal"):
        table.add_column(name, justify="right")
    met, keys = True, ("network", "bits", "accumulator", "share")
    groups: dict[tuple, list[OverflowResult]] = {}
    for run in runs:
        groups.setdefault(tuple(getattr(run, key) for key in keys), []).append(run)
    for (network, bits, accumulator, one), found in groups.items():
        stages = [[getattr(run, name) for run in found] for name in ("before", "enlarged", "trained")]
        real, *accuracies = (float(np.mean(values)) for values in (
            [run.fp32 for run in found], *([state.accuracy for state in same] for same in stages)))
        events = [sum(state.events for state in same) for same in stages]
        test, points = sum(run.test_events for run in found), accuracies[-1] - real
        binding = accumulator in BINDING
        met &= not any(events[1:]) and (not binding or points >= -NEAR)
        table.add_row(
            PLANS[network].title, f"{bits} bits", f"{accumulator} bits", "default" if one is None else str(one),
            *(f"{value:.2f}" for value in (real, *accuracies)), f"{points:+.2f}",
            *(f"{number:,}" for number in events), f"{test:,}",
            f"{test / sum(run.test_additions for run in found):.1e}", f"-{NEAR}, 0 events" if binding else "0 events")
    console.print(table)
    return met


def main(
    network: Annotated[list[str] | None, typer.Option(help=" or ".join(PLANS), show_default="all")] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds.", min=1)] = 3,
    share: Annotated[list[float] | None, typer.Option(
        help="Share of the growth that ranges of inputs take; several to compare.", show_default="the default")] = None,
    accumulator: Annotated[list[int] | None, typer.Option(help="Only these widths.", show_default="all")] = None,
    folder: Annotated[Path | None, typer.Option("--data", help="Folder of the training images.")] = None,
    sequences: Annotated[Path | None, typer.Option(help="Folder of the training utterances.")] = None,
) -> None:
    """Train all networks, print the table, and write JSON; the exit code is 1 if a goal is missed."""
    if unknown := set(network or ()) - set(PLANS):
        raise typer.BadParameter(f"there is no network {min(unknown)!r}: choose {' or '.join(PLANS)}")
    console = Console(width=None if sys.stdout.isatty() else 200)
    began = time.perf_counter()
    runs = all_runs(network or PLANS, share or (None,), accumulator or (), (folder, sequences), seeds, console)
    met = report(runs, console)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "runs.json").write_text(json.dumps([asdict(run) for run in runs], indent=1))
    console.print(f"{time.perf_counter() - began:.0f} s; {OUT / 'runs.json'}")
    raise typer.Exit(0 if met else 1)


if __name__ == "__main__":
    typer.run(main)
