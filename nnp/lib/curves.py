"""Pictures of accuracy against epoch for starting points of quantisation-aware training.

Source: S0.e, figure 11.
"""

import csv
import io
from collections.abc import Mapping, Sequence

import matplotlib
from concord.train.runs.compare_starts import band
from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: For each starting point by name, one curve for each seed.
Curves = Mapping[str, Sequence[Sequence[float]]]


def draw(axes: Axes, title: str, fp32: float, curves: Curves):
    """Draw the mean over the seeds as a line, its 95 % confidence interval as a band, and the FP32 accuracy.

    Args:
        fp32:   Accuracy of the FP32 network in percent.
        curves: Accuracies in percent before training and after each epoch.
    """
    axes.axhline(fp32, color="black", linestyle="--", label="FP32 network")
    for name, found in curves.items():
        mean, half = band(found)
        (line,) = axes.plot(mean, label=f"start from {name}")
        axes.fill_between(range(len(mean)), mean - half, mean + half, alpha=0.2, color=line.get_color())
    axes.set(title=title, xlabel="epoch", ylabel="test accuracy, %")
    axes.locator_params(axis="x", integer=True)


def picture(kind: str, title: str, fp32: float, curves: Curves) -> bytes:
    """Draw one setting, as a file of format `kind`; the same numbers give the same bytes."""
    figure = Figure(figsize=(6, 4.5), layout="constrained")
    axes = figure.add_subplot()
    draw(axes, title, fp32, curves)
    axes.legend()
    stream, dates = io.BytesIO(), {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with matplotlib.rc_context({"svg.hashsalt": "concord"}):
        figure.savefig(stream, format=kind, dpi=130, metadata=dates.get(kind))
    return stream.getvalue()


def table(fp32: Sequence[float], curves: Curves) -> str:
    """CSV text with columns start, seed, epoch and accuracy in percent; the FP32 network has no epoch."""
    stream = io.StringIO()
    lines = csv.writer(stream, lineterminator="\n")
    lines.writerow(("start", "seed", "epoch", "accuracy"))
    lines.writerows(("FP32 network", seed, "", value) for seed, value in enumerate(fp32))
    for name, found in curves.items():
        for seed, curve in enumerate(found):
            lines.writerows((name, seed, epoch, value) for epoch, value in enumerate(curve))
    return stream.getvalue()
