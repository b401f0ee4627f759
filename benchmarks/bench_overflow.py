"""Networks for narrow accumulators beside FP32: `nox -s bench_overflow`.

An MLP 784-128-64-10 learns the 60,000 images of Fashion-MNIST, becomes integers of 8 or 4 bits, and runs on
accumulators of 16, 14 and 12 bits that wrap: as it is, after its ranges were enlarged until no sum of the calibration
set overflows, and after quantisation-aware training in which they are kept so. Every partial sum counts, one product
after another; accuracies are those of the 10,000 test images in golden arithmetic, wrapping included.
"""

import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table

from golden import dataset, network
from golden.layer_overflow import Widths
from golden.model import Model, Provenance
from golden.model_overflow import dry_run, wrapped
from spec.formats import Format
from train import data, mlp
from train.export import floats
from train.fit import reproducible, share

SETTINGS = tuple((bits, accumulator) for bits in (8, 4) for accumulator in (16, 14, 12))
#: Points that a network may lie below FP32, in the mean over the seeds, on accumulators of these bits.
NEAR, BINDING = 0.5, (16, 14)
SIZES, EPOCHS, CALIBRATION = (784, 128, 64, 10), (20, 8, 2), 512
OUT = Path("build/bench_overflow")


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A network on its accumulator.

    Attributes:
        accuracy: On the test set, in percent.
        events:   On the calibration set.
        needed:   Accumulator bits that the calibration set needs.
    """

    accuracy: float
    events: int
    needed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One network.

    Attributes:
        bits, accumulator, seed:    What was trained.
        before, enlarged, trained:  After PTQ; with larger ranges; after QAT.
        test_events, test_additions: Of the trained network on the test set, and the partial sums that could overflow.
        record:                     What was done to its ranges.
    """

    bits: int
    accumulator: int
    seed: int
    before: Stage
    enlarged: Stage
    trained: Stage
    test_events: int
    test_additions: int
    record: str


def train_float(folder: Path | None, seed: int) -> tuple[int, dict[str, np.ndarray], float]:
    """Train the FP32 network: its seed, parameters and accuracy in percent."""
    reproducible(seed)
    images, labels, test = _data(folder)
    net = mlp.train_float(images, labels, SIZES, seed=seed, epochs=EPOCHS[0])
    with torch.no_grad():
        right = share(net(floats(test.inputs)).argmax(1), test.labels)
    return seed, {name: value.numpy() for name, value in net.state_dict().items()}, 100 * right


def quantise(folder: Path | None, bits: int, accumulator: int, seed: int, parameters: dict[str, np.ndarray]) -> Run:
    """Quantise an FP32 network for an accumulator and retrain it."""
    reproducible(seed)
    images, labels, test = _data(folder)
    net = mlp.Float(SIZES)
    net.load_state_dict({name: torch.from_numpy(value) for name, value in parameters.items()})
    fmt, widths, calibration = Format(bits=bits, symmetric=True), Widths(sum_bits=accumulator), images[:CALIBRATION]
    qat = mlp.Quantised(net, calibration, fmt, fmt)
    first = data.fashion_mnist(folder).first(CALIBRATION)

    def stage() -> Stage:
        model = _model(qat, test)
        uses = dry_run(model, first.inputs, None, widths)
        return Stage(
            accuracy=100 * share(network.classes(wrapped(model, test.inputs, accumulator)), test.labels),
            events=sum(use.count.number for use in uses),
            needed=max(use.count.bits for use in uses),
        )

    before, predictor = stage(), mlp.overflow_predictor(qat, calibration, widths)
    predictor.run()
    enlarged = stage()
    for lowered, epochs, rate in ((False, EPOCHS[1], 0.01), (True, EPOCHS[2], 0.001)):
        mlp.train_quantised(
            qat, images, labels, lowered=lowered, epochs=epochs, rate=rate, seed=seed, predictor=predictor)
    uses = dry_run(_model(qat, test), test.inputs, None, widths)
    return Run(
        bits=bits, accumulator=accumulator, seed=seed, before=before, enlarged=enlarged, trained=stage(),
        test_events=sum(use.count.number for use in uses), test_additions=sum(use.count.additions for use in uses),
        record=str(predictor.record))


def _data(folder: Path | None):
    """Training images and labels, and the test set."""
    train = data.fashion_mnist(folder)
    return floats(train.inputs), torch.from_numpy(train.labels.copy()), dataset.load("fashion-mnist")


def _model(qat: mlp.Quantised, test: dataset.Samples) -> Model:
    """The network as golden runs it."""
    none = np.zeros(0, np.uint8)
    made = Provenance(command="nox -s bench_overflow", method="", seed=0, fp32_accuracy=0, qat_accuracy=0,
                      golden_accuracy=0)
    return Model(
        name="bench", data="fashion-mnist", preprocessing="", classes=test.classes, layers=qat.lower([{}] * 3),
        provenance=made, fp32_predictions=none, qat_predictions=none)


def all_runs(folder: Path | None, seeds: int, console: Console) -> tuple[list[float], list[Run]]:
    """FP32 accuracy of each seed, and every setting of every seed; two processes."""
    with ProcessPoolExecutor(2, get_context("spawn")) as pool, \
            Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("training", total=seeds * (1 + len(SETTINGS)))
        fp32, waiting, runs = [0.0] * seeds, [], []
        for done in as_completed([pool.submit(train_float, folder, seed) for seed in range(seeds)]):
            seed, parameters, fp32[seed] = done.result()
            waiting += [pool.submit(quantise, folder, *setting, seed, parameters) for setting in SETTINGS]
            progress.advance(task)
        for done in as_completed(waiting):
            runs.append(done.result())
            progress.advance(task)
    return fp32, sorted(runs, key=lambda run: (SETTINGS.index((run.bits, run.accumulator)), run.seed))


def report(fp32: list[float], runs: list[Run], console: Console) -> bool:
    """Print the table; whether all goals are met."""
    mean = float(np.mean(fp32))
    table = Table(title=f"Fashion-MNIST, MLP {'-'.join(map(str, SIZES))}, test accuracy in percent on sums that wrap; "
                        f"FP32 {' '.join(f'{value:.2f}' for value in fp32)}", title_justify="left")
    for name in ("weights and activations", "sums", "before", "enlarged", "after QAT", "- FP32", "events before",
                 "enlarged", "after QAT", "in test", "share in test", "goal"):
        table.add_column(name, justify="right")
    met = True
    for bits, accumulator in SETTINGS:
        found = [run for run in runs if (run.bits, run.accumulator) == (bits, accumulator)]
        stages = [[getattr(run, name) for run in found] for name in ("before", "enlarged", "trained")]
        cells = [" ".join(f"{stage.accuracy:.2f}" for stage in stage_runs) for stage_runs in stages]
        events = [" ".join(f"{stage.events:,}" for stage in stage_runs) for stage_runs in stages]
        points = float(np.mean([run.trained.accuracy for run in found])) - mean
        clean = not any(run.enlarged.events or run.trained.events for run in found)
        met &= clean and (accumulator not in BINDING or points >= -NEAR)
        test = sum(run.test_events for run in found)
        table.add_row(
            f"{bits} bits", f"{accumulator} bits", *cells, f"{points:+.2f}", *events, f"{test:,}",
            f"{test / sum(run.test_additions for run in found):.1e}",
            f"-{NEAR}, 0 events" if accumulator in BINDING else "0 events")
    console.print(table)
    for run in runs:
        console.print(f"{run.bits} bits, seed {run.seed}: {run.record}", highlight=False)
    return met


def main(
    seeds: Annotated[int, typer.Option(help="How many.", min=1)] = 1,
    folder: Annotated[Path | None, typer.Option("--data", help="Folder of the training images.")] = None,
) -> None:
    """Train all networks, print the table, write JSON; exit code 1 where a goal is missed."""
    console = Console(width=None if sys.stdout.isatty() else 170)
    began = time.perf_counter()
    data.fashion_mnist(folder)  # says what to do where it is missing, before processes start
    fp32, runs = all_runs(folder, seeds, console)
    met = report(fp32, runs, console)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "runs.json").write_text(json.dumps({"fp32": fp32, "runs": [asdict(run) for run in runs]}, indent=1))
    console.print(f"{time.perf_counter() - began:.0f} s; {OUT / 'runs.json'}")
    raise typer.Exit(0 if met else 1)


if __name__ == "__main__":
    typer.run(main)
