"""Figure 11 of the first source document, as a page and a picture in the docs: `nox -s figure11`.

Three starts of quantisation-aware training in seven settings, with integers -2^(k-1)..2^(k-1)-1 as the document has
them. What has ended is kept: a session that was stopped goes on from there.
"""

import hashlib
import json
import sys
import time
from itertools import product
from pathlib import Path
from textwrap import wrap
from typing import Annotated

import matplotlib
import numpy as np
import typer
from concord.benchmarks import bench_train
from concord.benchmarks.bench_train import OUT, SAMPLES, SEEDS, Job, curves, real
from concord.lib.processes import side_by_side
from concord.train.runs.compare_starts import FIGURE, STARTS
from rich.console import Console

PAGE, PICTURE = Path("docs/figure11.md"), Path("docs/figure11.svg")
#: Whether weights leave out their lowest integer, and inputs their lowest code.
SYMMETRIC = (False, False)
#: Indices of a curve at which the page compares starts.
COMPARED = {"epoch 0": 0, "epoch 1": 1, "the end": -1}
TEXT = """# Starts of quantisation-aware training: figure 11

The first source document compares three starting points of quantisation-aware training (QAT) in figure 11: FP32 weights
with scale 1, ranges from the smallest to the largest value (*min-max*), and post-training quantisation (*PTQ*). This
page has the same seven settings of weights (W) and inputs of layers (A), 32 for FP32, with integers
-2^(k-1)..2^(k-1)-1 as in the document. The networks are small namesakes of its networks (ResNet, MobileNet, Inception),
and their data are Fashion-MNIST's: {samples:,} training images, {epochs} epochs, and all 10,000 test images.
`nox -s figure11` trains them and writes this page.

![Accuracy against epoch for three starts and seven settings](figure11.svg)

Accuracy in percent, the mean of the seeds; lines are means, and bands hold the mean with 95 % confidence. *Difference*
is the end beside FP32, in points.

| setting | FP32 | start | epoch 0 | epoch 1 | end | difference | end of each seed |
| --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

{losses}
"""


def run_once(job: Job, samples: int, epochs: int) -> tuple[Job, float, list[float]]:
    """The result of `bench_train.run` with integers as the document has them; a job runs once, and is kept."""
    text = repr((str(job[0]), *job[1:], samples, epochs, SYMMETRIC))
    path = OUT / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if not path.exists():
        setting, name, options, seed = job
        _, fp32, curve = bench_train.run((setting, name, {**options, "symmetric": SYMMETRIC}, seed), samples, epochs)
        path.write_text(json.dumps({"fp32": fp32, "curve": curve}))
    found = json.loads(path.read_text())
    return job, found["fp32"], found["curve"]


def page(results: list, samples: int, epochs: int) -> str:
    """The text of the page, which says where PTQ is not the best start."""
    rows, lost = [], []
    for setting, name in product(FIGURE, STARTS):
        fp32, each = real(results, setting.network), curves(results, setting, name)
        mean, ours = (np.mean(found, axis=0) for found in (each, curves(results, setting, "PTQ")))
        rows.append(f"| {setting} | {fp32:.2f} | {name} | {mean[0]:.2f} | {mean[1]:.2f} | {mean[-1]:.2f} | "
                    f"{mean[-1] - fp32:+.2f} | {' '.join(f'{curve[-1]:.2f}' for curve in each)} |")
        lost += [f"{setting} at {epoch} ({ours[index]:.2f} against {mean[index]:.2f} from {name})"
                 for epoch, index in COMPARED.items() if ours[index] < mean[index]]
    losses = f"PTQ is behind another start in {'; '.join(lost)}." if lost else "PTQ is behind no other start."
    return TEXT.format(samples=samples, epochs=epochs, rows="\n".join(rows), losses="\n".join(wrap(losses, 120)))


def main(
    seeds: Annotated[int, typer.Option(help="Number of seeds.", min=1)] = SEEDS,
    samples: Annotated[int, typer.Option(help="Number of training images.", min=1)] = SAMPLES,
    epochs: Annotated[int, typer.Option(help="Epochs of quantisation-aware training.", min=1)] = bench_train.EPOCHS,
):
    """Train all networks, and write the page and its picture."""
    console, began = Console(width=None if sys.stdout.isatty() else 130), time.perf_counter()
    networks = sorted({setting.network for setting in FIGURE})
    side_by_side("FP32", bench_train.prepare, [(name, seed, samples) for name in networks for seed in range(seeds)],
                 console)
    OUT.mkdir(parents=True, exist_ok=True)
    jobs = [((setting, name, options, seed), samples, epochs) for seed in range(seeds) for setting in FIGURE
            for name, options in STARTS.items()]
    results = side_by_side("behind quantisers", run_once, jobs, console)
    PAGE.write_text(page(results, samples, epochs))
    with matplotlib.rc_context({"svg.hashsalt": "concord"}):
        bench_train.picture(results, PICTURE)
    console.print(f"{time.perf_counter() - began:.0f} s; {PAGE}, {PICTURE}")


if __name__ == "__main__":
    typer.run(main)
