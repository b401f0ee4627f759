"""The charts of the report, its bars and lines, as SVG text."""

import io
from math import isfinite, nan

import matplotlib
import numpy as np
from concord.datasets.measures import SHARES, scores, text
from concord.datasets.samples import Task
from concord.firmware.layer_costs import STATES, UNITS
from concord.verification.tables import NETWORKS, ORIGINALS
from concord.verification.verified import Verified
from concord.workflows.results import real
from matplotlib.figure import Figure

#: How the bar of each state is drawn.
COLOURED = dict(zip(STATES, ("#2a6f97", "#e9c46a", "#e76f51"), strict=True))


#: Colours of the networks in pictures of measures.
COLOURS = dict(zip(NETWORKS, ("#8d99ae", "#577590", "#43aa8b", "#2a6f97"), strict=True)) | dict.fromkeys(
    ORIGINALS, "#e9c46a")
#: Samples of each class or target that a picture shows at most; more cover each other.
POINTS = 2000
#: Letters of a name beside a bar; longer names lose their middle.
LONGEST = 28


def measures(done: list[Verified], name: str) -> str:
    """A picture of one measure of every network of the models that have it; empty if none has a finite one."""
    having = [verified for verified in done if isfinite(verified.measures.get("golden", {}).get(name, nan))]
    if not having:
        return ""
    figure, axes = _figure(7, 1 + 1.2 * len(having))
    for index, verified in enumerate(having):
        found = {network: values[name] for network, values in verified.measures.items() if isfinite(values[name])}
        heights = [index + 0.16 * k for k in range(len(found))]
        bars = axes.barh(heights, list(found.values()), 0.15, color=[COLOURS[network] for network in found])
        words = [f"{network} {text(name, value)}" for network, value in found.items()]
        axes.bar_label(bars, words, padding=3, fontsize=8)
    axes.set_yticks([index + 0.3 for index in range(len(having))], [shortened(v.request.path.stem) for v in having])
    if name in SHARES:
        axes.set_xlim(0, 1.25)
        axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    else:
        axes.margins(x=0.2)
    axes.invert_yaxis()
    axes.set_xlabel(f"{name} on the same samples")
    return _svg(figure)


def answers(verified: Verified) -> str:
    """A picture of the machine's answers beside the labels; empty where there are no labels, and for classes."""
    if verified.samples.labels is None or verified.task not in ANSWERS:
        return ""
    return ANSWERS[verified.task](verified)


def _regression(verified: Verified) -> str:
    """The machine's outputs over the targets, whose equality is a line."""
    figure, axes = _figure(4.5, 4.5)
    targets, outputs = verified.samples.labels[:POINTS], real(verified.other.outputs)[:POINTS]
    for column in range(targets.shape[1]):
        axes.scatter(targets[:, column], outputs[:, column], 8, alpha=0.6, label=f"output {column}", linewidths=0)
    axes.axline((float(targets[0, 0]),) * 2, slope=1, color="black", linewidth=0.8, linestyle=":")
    axes.set(xlabel="target", ylabel="output of the machine (dotted: equal)")
    if 1 < targets.shape[1] <= 10:
        axes.legend(fontsize=8, frameon=False)
    return _svg(figure)


def _anomaly(verified: Verified) -> str:
    """Share of the anomalies that are found over the share of false alarms, for every threshold of the score."""
    figure, axes = _figure(4.5, 4.5)
    labels = verified.samples.labels.astype(bool)
    found = scores(real(verified.other.outputs), verified.samples)
    order = np.argsort(-found, kind="stable")
    ends = np.append(np.diff(found[order]) != 0, True)  # the last of equal scores
    if 0 < labels.sum() < len(labels):
        axes.plot(*(np.append(0, np.cumsum(chosen[order])[ends] / chosen.sum()) for chosen in (~labels, labels)),
                  color="#2a6f97")
    axes.plot([0, 1], [0, 1], color="black", linewidth=0.8, linestyle=":")
    axes.set(xlabel="false alarms, share of normal samples", ylabel="anomalies found, share", xlim=(0, 1),
             ylim=(0, 1.01))
    return _svg(figure)


#: For each task whose labels are no classes, its picture.
ANSWERS = {Task.REGRESSION: _regression, Task.ANOMALY: _anomaly}


def cycles(verified: Verified) -> str:
    """A picture of the cycles of one inference by unit; empty for golden, which has no clock, and for
    several machines."""
    if not verified.cycles or len(verified.parts) > 1:
        return ""
    figure, axes = _figure(7, 2.6)
    count = len(verified.samples)
    units = dict(UNITS)
    if not verified.parts[0].config.vector_rf:
        del units["gather unit"]  # it reads VectorRf, which this machine does not have
    for row, counters in enumerate(units.values()):
        left = 0.0
        for counter, (state, colour) in zip(counters, COLOURED.items(), strict=True):
            width = verified.other.counters[0][counter] / count if counter is not None else 0
            axes.barh(row, width, 0.6, left, color=colour, label=state if row == 1 else None)
            left += width
    axes.axvline(verified.cycles, color="black", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(units)), units)
    axes.invert_yaxis()
    axes.set_xlabel(f"cycles per inference (dotted: all {verified.cycles:,.0f})")
    # The legend stands above the axes: inside, it would cover bars.
    axes.legend(fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(STATES), frameon=False)
    return _svg(figure)


def layers(verified: Verified) -> str:
    """A picture of the tile engines' cycles in each layer, for the first sample; empty without costs of layers."""
    if not verified.costs:
        return ""
    figure, axes = _figure(7, 1.2 + 0.35 * len(verified.costs))
    for row, cost in enumerate(verified.costs):
        axes.barh(row, cost.cycles, 0.8, color="#dee2e6", label=None if row else "all cycles")
        left = 0
        engines = (counter for counter in UNITS["tile engines"] if counter is not None)
        for counter, (state, colour) in zip(engines, COLOURED.items(), strict=True):
            width = max(0, cost.counters[counter])  # a difference of waits may be negative
            axes.barh(row, width, 0.5, left, color=colour, label=None if row else state)
            left += width
    axes.set_yticks(range(len(verified.costs)), [shortened(cost.title) for cost in verified.costs])
    axes.invert_yaxis()
    axes.set_xlabel("cycles of the tile engines in one sample")
    axes.legend(fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(STATES) + 1, frameon=False)
    return _svg(figure)


def errors(verified: Verified) -> str:
    """A picture of each layer's distance from the FP32 network; empty if the model file has no FP32 network."""
    if not verified.errors:
        return ""
    figure, axes = _figure(7, 1 + 0.4 * len(verified.errors))
    bars = axes.barh(range(len(verified.errors)), list(verified.errors.values()), 0.6, color="#577590")
    axes.bar_label(bars, [f"{value:.2%}" for value in verified.errors.values()], padding=3, fontsize=8)
    axes.set_yticks(range(len(verified.errors)), map(shortened, verified.errors))
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel("root mean square distance from the FP32 layer, relative")
    return _svg(figure)


def shortened(name: str) -> str:
    """A name without its middle, where it would leave no room for the bars beside it."""
    return name if len(name) <= LONGEST else f"{name[:LONGEST // 2 - 1]}\u2026{name[-LONGEST // 2:]}"


def _figure(width: float, height: float):
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure: Figure) -> str:
    """The picture as SVG without the XML header, for use inside a page."""
    stream = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "concord", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]
