"""Compare training with the lazy update and with other updates: `nox -s bench_lazy`; `--speed` times a training step,
`--exponents` counts right guesses of exponents.

A network of convolutions, pooling and relu with 29,083 parameters learns 10,000 images of Fashion-MNIST in 5 epochs of
plain SGD, and is measured on all 10,000 test images.
"""

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import matplotlib
import numpy as np
import torch
import typer
from concord.benchmarks.lazy_exponents import report_exponents
from concord.benchmarks.lazy_sequences import report_sequences
from concord.benchmarks.speed import report_lazy
from concord.datasets import dataset
from concord.golden.lazy.tensor_training import Rates
from concord.lib.processes import side_by_side
from concord.train.bfp import tensor_fit, tensor_network
from concord.train.bfp.options import UpdateRule
from concord.train.bfp.parameters import state_bytes
from concord.train.lib import data
from concord.train.lib.fit import reproducible
from rich.console import Console
from rich.table import Table

matplotlib.use("Agg")
from matplotlib import pyplot

RATES = (0.02, 0.002)
RULES = (UpdateRule.FP32, UpdateRule.MASTER, UpdateRule.LAZY, UpdateRule.NONE, UpdateRule.STOCHASTIC)
ONCE = (UpdateRule.FROZEN, UpdateRule.RESIDUAL8)  #: Update rules that are trained with one seed only.
SAMPLES, EPOCHS, BATCH = 10_000, 5, 32
#: Goals in points by learning rate: largest distance of lazy from master, and least distance of lazy above none.
NEAR, ABOVE = 0.5, {0.02: 4.0, 0.002: 50.0}
OUT = Path("build/bench_lazy")


@dataclass(frozen=True, kw_only=True, slots=True)
class LazyTraining:
    """The result of one training.

    Attributes:
        rule, rate, seed: Update rule, learning rate and seed.
        accuracy:         Accuracy on the test set in percent.
        changes:          Number of times that a tensor changed its exponent.
        saturations:      Number of updates and mantissas that saturated.
        seconds:          Wall time in seconds.
    """

    rule: UpdateRule
    rate: float
    seed: int
    accuracy: float
    changes: int
    saturations: int
    seconds: float


def train(rule: UpdateRule, rate: float, seed: int, samples: int, epochs: int) -> LazyTraining:
    """Train a network on one thread, and measure its accuracy."""
    reproducible(seed)
    torch.utils.deterministic.fill_uninitialized_memory = False  # no code reads memory that it has not written
    learn, test = data.fashion_mnist().first(samples), dataset.load("fashion-mnist")
    x, y = (tensor_fit.images(part) for part in (learn, test))
    values, began = tensor_network.initial_values(tensor_fit.CLASSIFIER, seed), time.perf_counter()
    options = {"epochs": epochs, "batch_size": BATCH, "seed": seed}
    if rule is UpdateRule.FP32:
        net = tensor_network.float_network(tensor_fit.CLASSIFIER)
        net.load_state_dict({name: torch.from_numpy(value) for name, value in values.items()})
        tensor_fit.fit_float(net, torch.from_numpy(x), learn.labels, learning_rate=rate, **options)
        share, changes, saturations = tensor_fit.float_accuracy(net, torch.from_numpy(y), test.labels), 0, 0
    else:
        net = tensor_network.network(tensor_fit.CLASSIFIER, rule, Rates(learning_rate=rate), seed=seed, values=values)
        tensor_fit.fit(net, tensor_network.inputs(x), learn.labels, **options)
        share = tensor_fit.accuracy(net, tensor_network.inputs(y), test.labels)
        changes, saturations = net.counts.changes, net.counts.saturations
    return LazyTraining(rule=rule, rate=rate, seed=seed, accuracy=100 * share, changes=changes, saturations=saturations,
                        seconds=time.perf_counter() - began)


def all_runs(seeds: int, samples: int, epochs: int, console: Console) -> list[LazyTraining]:
    """Train with every update rule, in two processes."""
    jobs = [(rule, rate, seed) for seed in range(seeds) for rule in RULES for rate in RATES]
    jobs += [(rule, rate, 0) for rule in ONCE for rate in RATES]
    return side_by_side("training", train, [(*job, samples, epochs) for job in jobs], console)


def chosen(runs: list[LazyTraining], rule: UpdateRule, rate: float) -> list[LazyTraining]:
    return sorted((run for run in runs if (run.rule, run.rate) == (rule, rate)), key=lambda run: run.seed)


def mean(runs: list[LazyTraining], rule: UpdateRule, rate: float) -> float:
    """Mean accuracy of an update rule over the seeds."""
    return float(np.mean([run.accuracy for run in chosen(runs, rule, rate)]))


def report(runs: list[LazyTraining], console: Console) -> bool:
    """Print the tables, and return whether all goals are met."""
    state = Rates(learning_rate=RATES[0])
    table = Table("rule", "learning rate", "accuracy, mean", "each seed", "exponents changed", "saturations",
                  "bytes a parameter", "seconds a run", title="Fashion-MNIST, 29,083 parameters")
    for rate in RATES:
        for rule in (*RULES, *ONCE):
            found = chosen(runs, rule, rate)
            cells = ((f"{run.accuracy:.2f}", str(run.changes), f"{run.saturations:,}") for run in found)
            table.add_row(rule, f"{rate}", f"{mean(runs, rule, rate):.2f}", *map(" ".join, zip(*cells, strict=True)),
                          str(state_bytes(rule, state)["all"]), f"{np.mean([run.seconds for run in found]):.0f}")
    console.print(table)
    goals, met = Table("learning rate", "|lazy - master|", "goal", "lazy - none", "goal", title="Points"), True
    for rate in RATES:
        near = abs(mean(runs, UpdateRule.LAZY, rate) - mean(runs, UpdateRule.MASTER, rate))
        above = mean(runs, UpdateRule.LAZY, rate) - mean(runs, UpdateRule.NONE, rate)
        met &= near <= NEAR and above >= ABOVE[rate]
        goals.add_row(f"{rate}", f"{near:.2f}", f"at most {NEAR}", f"{above:.2f}", f"at least {ABOVE[rate]:g}")
    console.print(goals)
    kinds = "parameter", "residual", "master", "momentum", "all"
    state_table = Table("rule", *kinds, title="Bytes a parameter, with momentum")
    for rule in (*RULES, *ONCE):
        found = state_bytes(rule, Rates(learning_rate=RATES[0], momentum=0.9))
        state_table.add_row(rule, *(str(found[kind]) for kind in kinds))
    console.print(state_table)
    return met


def picture(runs: list[LazyTraining], path: Path):
    """Draw the accuracy of each update rule, with a dot for each seed."""
    figure, axes = pyplot.subplots(1, len(RATES), figsize=(9, 3.5), sharey=True, layout="constrained")
    rules = (*RULES, *ONCE)
    for rate, axis in zip(RATES, axes, strict=True):
        axis.bar(range(len(rules)), [mean(runs, rule, rate) for rule in rules], color="#bcd", zorder=0)
        for index, rule in enumerate(rules):
            found = chosen(runs, rule, rate)
            axis.scatter([index] * len(found), [run.accuracy for run in found], s=12, color="#245", zorder=2)
        axis.set_xticks(range(len(rules)), rules, rotation=30, ha="right")
        axis.set_title(f"learning rate {rate}")
    axes[0].set_ylabel("test accuracy, %")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def main(
    speed: Annotated[bool, typer.Option("--speed", help="Measure a training step instead.")] = False,
    seeds: Annotated[int, typer.Option(help="Number of seeds.", min=1)] = 3,
    exponents: Annotated[bool, typer.Option(
        "--exponents", help="Count how often the exponent of a tensor is that of the step before instead.")] = False,
    sequences: Annotated[bool, typer.Option(
        "--sequences", help="Train an LSTM and a GRU on JapaneseVowels instead.")] = False,
    vowels: Annotated[Path | None, typer.Option(
        help="Folder of JapaneseVowels for --sequences.", show_default="that of the package aeon")] = None,
    samples: Annotated[int, typer.Option(help="Number of training images.")] = SAMPLES,
    epochs: Annotated[int, typer.Option(help="Number of epochs.")] = EPOCHS,
) -> None:
    """Train with all update rules, print tables, write a picture and JSON; the exit code is 1 if a goal is missed."""
    console = Console(width=None if sys.stdout.isatty() else 150)
    if speed:
        report_lazy(console)
        return
    if exponents:
        report_exponents(seeds, console)
        return
    if sequences:
        report_sequences(vowels, seeds, epochs, console)
        return
    began = time.perf_counter()
    runs = all_runs(seeds, samples, epochs, console)
    met = report(runs, console)
    OUT.mkdir(parents=True, exist_ok=True)
    picture(runs, OUT / "accuracy.png")
    (OUT / "runs.json").write_text(json.dumps([asdict(run) for run in runs], indent=1))
    console.print(f"{time.perf_counter() - began:.0f} s; {OUT / 'accuracy.png'}, {OUT / 'runs.json'}")
    raise typer.Exit(0 if met else 1)


if __name__ == "__main__":
    typer.run(main)
