"""The report's pictures, as SVG text."""

import io

import matplotlib
from concord.nnp.verify.verification import Verified
from concord.spec.registers import Counter
from matplotlib.figure import Figure

#: For each unit's counter of cycles: its name in the picture, and how its bar is drawn.
STATES = {"busy": "#2a6f97", "waits for operands": "#e9c46a", "waits for output": "#e76f51"}
UNITS = {
    "operand fetch": (Counter.FETCH_BUSY, Counter.FETCH_WAIT, None),
    "tile engines": (Counter.MVM_BUSY, Counter.MVM_WAIT_OPERAND, Counter.MVM_WAIT_OUTPUT),
    "MFUs": (Counter.MFU_BUSY, Counter.MFU_WAIT_OPERAND, Counter.MFU_WAIT_OUTPUT),
    "copies": (Counter.COPY_BUSY, Counter.COPY_WAIT, None),
    "gather unit": (Counter.GATHER_BUSY, Counter.GATHER_WAIT, None),
}


def accuracy(done: list[Verified]) -> str:
    """A picture of the accuracy of each network in each arithmetic."""
    figure, axes = _figure(7, 1 + 1.2 * len(done))
    names = ["FP32", "QAT", "golden", "RTL"]
    for index, verified in enumerate(done):
        values = [verified.accuracies.get(name, 0) for name in names]
        places = [index + 0.2 * k for k in range(len(names))]
        bars = axes.barh(places, values, 0.18, color=["#8d99ae", "#577590", "#43aa8b", "#2a6f97"])
        axes.bar_label(
            bars,
            [f"{name} {value:.1%}" if value else "" for name, value in zip(names, values, strict=True)],
            padding=3,
            fontsize=8,
        )
    axes.set_yticks([index + 0.3 for index in range(len(done))], [verified.request.path.stem for verified in done])
    axes.set_xlim(0, 1.25)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.invert_yaxis()
    axes.set_xlabel("accuracy on the same samples")
    return _svg(figure)


def cycles(verified: Verified) -> str:
    """A picture of the cycles of one inference by unit; empty for golden, which has no clock."""
    if not verified.cycles:
        return ""
    figure, axes = _figure(7, 2.6)
    count = len(verified.samples)
    units = dict(UNITS)
    if not verified.compiled.firmware.config.vector_rf:
        del units["gather unit"]  # it reads VectorRf, which this machine does not have
    for row, counters in enumerate(units.values()):
        left = 0.0
        for counter, (state, colour) in zip(counters, STATES.items(), strict=True):
            width = verified.other.counters[counter] / count if counter is not None else 0
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
        for counter, (state, colour) in zip(UNITS["tile engines"], STATES.items(), strict=True):
            width = max(0, cost.counters[counter])  # a difference of waits may be negative
            axes.barh(row, width, 0.5, left, color=colour, label=None if row else state)
            left += width
    axes.set_yticks(range(len(verified.costs)), [cost.title for cost in verified.costs])
    axes.invert_yaxis()
    axes.set_xlabel("cycles of the tile engines in one sample")
    axes.legend(fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(STATES) + 1, frameon=False)
    return _svg(figure)


def errors(verified: Verified) -> str:
    """A picture of each layer's distance from the FP32 network; empty if the model file has no FP32 network."""
    if not verified.errors:
        return ""
    figure, axes = _figure(7, 1 + 0.4 * len(verified.errors))
    bars = axes.barh(list(verified.errors), list(verified.errors.values()), 0.6, color="#577590")
    axes.bar_label(bars, [f"{value:.2%}" for value in verified.errors.values()], padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel("root mean square distance from the FP32 layer, relative")
    return _svg(figure)


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
