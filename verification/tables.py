"""Tables that the commands print."""

from collections.abc import Callable, Sequence

from concord.compiler.explain import explain
from concord.compiler.network import Compiled
from concord.datasets import measures
from concord.firmware.cascade_session import Streamed
from concord.firmware.layer_costs import WAITS, LayerCost, wait_title
from concord.lib.several import listed
from concord.spec.host.registers import Counter
from concord.spec.machine.config import Config
from concord.verification.verified import Verified
from rich.markup import escape
from rich.table import Table

#: Networks whose measures are compared, by their names in tables.
NETWORKS = ("FP32", "quantised", "golden", "RTL")
#: Tools that networks come from, which run the same samples, by their names in tables.
ORIGINALS = ("onnxruntime", "qonnx", "PyTorch")


def usage_table(compiled: Compiled) -> Table:
    """A table of the words of each memory that the network uses."""
    table = Table("memory", "used", "of", "", title="memories", box=None, title_justify="left")
    for name, (used, available) in compiled.usage.items():
        table.add_row(name, str(used), str(available), f"{used / available:.0%}")
    return table


def bound_table(compiled: Compiled) -> Table:
    """A table of the bound of each product's sums, and whether they may overflow."""
    table = Table("product", "largest sum", "accumulator", "", title="sums", box=None, title_justify="left")
    for bound in compiled.bounds:
        verdict = "cannot wrap" if bound.proven else "may wrap"
        if bound.clamped:
            verdict += f"; {bound.clamped:.1%} of the weight blocks at an end of the exponent range"
        table.add_row(bound.product, f"{bound.bits} bits", f"{bound.has} bits", verdict)
    return table


def explain_table(compiled: Compiled) -> Table:
    """A table of the chains of each layer, the memories that it reads and writes, and the work of units.

    Where tiles or numbers come from Dram, it has their bytes, and what binds the layer, too.
    """
    table, works = Table(title="layers", box=None, title_justify="left"), explain(compiled.firmware)
    counts = {"beats": "beats", "conflicts": "conflict", "MFU\nwords": "words"}
    loads = any(work.loaded or work.moved for work in works)
    names = ("layer", "chains", "reads", "writes", *counts, *(("bytes of\nDram", "bound by") * loads))
    for name in names:
        text = name in ("layer", "reads", "writes", "bound by")
        table.add_column(name, justify="left" if text else "right", no_wrap=True, overflow="fold")
    size = 2 * compiled.firmware.config.mfu_lanes
    for work in works:
        outside = (f"{(work.loaded + work.moved) * size:,}", work.bound) if loads else ()
        table.add_row(work.layer or "input and output", str(work.chains), work.addresses(work.reads),
                      work.addresses(work.writes), *(f"{getattr(work, one):,}" for one in counts.values()), *outside)
    table.add_section()
    totals = (f"{sum(getattr(work, one) for work in works):,}" for one in counts.values())
    outside = (f"{sum(work.loaded + work.moved for work in works) * size:,}", "") if loads else ()
    table.add_row("all", str(sum(work.chains for work in works)), "", "", *totals, *outside)
    return table


def verify_table(done: list[Verified]) -> Table:
    """A table of the results, with one column for each model."""
    table = Table("", title="verification", title_justify="left")
    for verified in done:
        table.add_column(escape(verified.request.path.stem), overflow="fold")
    rows = verify_rows(done)
    sections = "outputs" if "outputs" in rows else "samples"
    for name, values in rows.items():
        table.add_row(name, *map(escape, values), end_section=name in (sections, "differing event counters")
                      or name.endswith(f", {NETWORKS[-1]}"))
    return table


def verify_rows(done: list[Verified]) -> dict[str, list[str]]:
    """The lines of that table by name, each with one value for each model."""
    lines: dict[str, Callable[[Verified], str]] = {
        "machine": lambda v: f"{_count(v)}{v.request.kind}, preset {v.preset}",
        "samples": lambda v: f"{len(v.samples)} of {v.source}",
    }
    if any(verified.results for verified in done):
        lines["outputs"] = lambda v: listed(v.results) or str(v.golden.outputs.shape[1])
    for measure in measure_names(done):
        for name in (*(tool for tool in ORIGINALS if any(_by(verified) == tool for verified in done)), *NETWORKS):
            lines[f"{measure}, {name}"] = lambda v, name=name, measure=measure: _measure(v, measure, name)
    lines |= {
        "mismatching bits, machine": lambda v: _compared(v, v.bits),
        "bits, golden and reference": lambda v: "no model" if v.reference_bits is None else str(v.reference_bits),
        "differing event counters": lambda v: _compared(v, len(v.events)),
        "cycles per inference": lambda v: f"{v.cycles:,.0f}" if v.cycles else "none on golden",
    }
    if any(verified.microseconds for verified in done):
        lines["time per inference"] = lambda v: (
            f"{v.microseconds:,.1f} us at {v.clock:g} MHz" if v.microseconds else "none on golden")
    lines |= {
        "MVM utilisation": lambda v: _percent(v.utilisation) if v.cycles else "none on golden",
        "overflows in total (partial, product, output)": _overflows,
    } | (SEVERAL if any(len(v.parts) > 1 for v in done) else {}) | (SHARED if any(v.cores > 1 for v in done) else {})
    return {name: [line(verified) for verified in done] for name, line in lines.items()}


def cost_rows(verified: Verified) -> list[list[str]]:
    """`rows_of_costs` of what was measured; empty without costs."""
    return rows_of_costs(verified.costs, verified.parts[0].config) if verified.costs else []


def rows_of_costs(costs: Sequence[LayerCost], config: Config) -> list[list[str]]:
    """The cost of each layer and of all together, as cells of a table; its head comes first.

    Columns of waits that are 0 for all layers are left out.
    """
    counters = {counter: sum(cost.counters[counter] for cost in costs) for counter in costs[0].counters}
    waits = [counter for counter in WAITS if any(cost.counters[counter] for cost in costs)]

    def cells(title: str, cost: LayerCost) -> list[str]:
        return [title, f"{cost.cycles:,}", _percent(cost.busy(config)),
                *(f"{cost.counters[counter]:,}" for counter in waits)]

    return [["layer", "cycles", "MVM utilisation", *map(wait_title, waits)],
            *(cells(cost.title, cost) for cost in costs), cells("all", LayerCost(layers=(), counters=counters))]


def cost_table(verified: Verified) -> Table:
    """A table of `cost_rows`."""
    return layer_table(f"layers of {verified.request.path.stem}, sample {verified.first}", cost_rows(verified))


def split_table(verified: Verified) -> Table:
    """A table of the parts of the error of each layer."""
    split = verified.split
    assert split is not None  # `--errors`
    return layer_table(f"errors of {verified.request.path.stem}, relative, {split.samples} samples",
                        split.rows)


def layer_table(title: str, cells: list[list[str]]) -> Table:
    """A table of its head, a line for each layer, and a last line for all of them.

    Text that is too wide for its column, first of all the name of a layer, goes on in the next line: nothing is cut.
    """
    (first, *head), *rows = cells
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column(first, overflow="fold")
    for name in head:
        table.add_column(name.replace(" ", "\n"), justify="right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _compared(verified: Verified, count: int) -> str:
    """The number of differences between golden and the machine, if another machine than golden ran."""
    return str(count) if verified.compared else "not run"


def without_costs(verified: Verified) -> str:
    """A sentence that says why there are no costs of layers."""
    return f"{verified.request.path.stem}: layers have no cycles, for {costs_reason(verified)}"


def costs_reason(verified: Verified) -> str:
    """Why there are no costs of layers."""
    if verified.bits:
        return "bits of the machine differ from golden"
    if verified.cores > 1:
        return "each sample runs beside those of other cores"
    return "they are shared by several machines" if verified.streamed else "the golden machine has no clock"


def faults(done: list[Verified]) -> list[str]:
    """A sentence about each difference between golden and the machine."""
    lines = []
    for verified in done:
        name, fault = verified.request.path.stem, verified.fault
        if verified.reference_bits:
            lines.append(f"{name}: {verified.reference_bits} bits of the golden machine differ from the network")
        if verified.large_bits:
            lines.append(f"{name}: {verified.large_bits} bits of the golden machines differ from one large machine")
        if verified.split is not None and not verified.split.compiled:
            lines.append(f"{name}: without quantisers, the compiled network differs from its float network by "
                         f"{verified.split.compiler:.1e} of its outputs, first at {verified.split.first}")
        if verified.bits:
            lines.append(f"{name}: {verified.bits} bits of the {verified.request.kind} machine differ from golden")
        if fault is not None:
            lines.append(f"{name}: {fault.difference}")
            lines.append(f"waveform: {fault.waves or 'none'}; reproduce with: {fault.command}")
        elif verified.bits and len(verified.parts) * verified.cores > 1:
            lines.append(f"{name}: each machine alone agrees with golden: the difference arises between the machines")
        lines += [
            f"{name}: event counter {verified.counter_name(*key)} is {golden} in golden and {other} in the machine"
            for key, (golden, other) in verified.events.items()
        ]
    return lines


def measure_names(done: list[Verified]) -> list[str]:
    """Names of all measures of these models, in order; "accuracy" if no model has labels."""
    names = dict.fromkeys(name for verified in done for name in verified.measures.get("golden", ()))
    return list(names) or ["accuracy"]


def _by(verified: Verified) -> str | None:
    """The tool that a network comes from; None for a quantised model."""
    return verified.comparison and verified.comparison.by


def _measure(verified: Verified, measure: str, name: str) -> str:
    """The value of a measure of one network as text, or why there is none."""
    if not verified.measures:
        return "no labels"
    if measure not in verified.measures["golden"]:
        return ""
    if name == _by(verified) and verified.comparison.reason:
        return f"not measured: {verified.comparison.reason}"
    if name not in verified.measures:
        return "not run" if name == "RTL" else "not known"
    return measures.text(measure, verified.measures[name][measure])


def _overflows(verified: Verified) -> str:
    if not all(part.config.count_overflows for part in verified.parts):
        return "not counted by this preset"
    kinds = (Counter.OVERFLOW_PARTIAL, Counter.OVERFLOW_PRODUCT, Counter.OVERFLOW_OUTPUT)
    return ", ".join(str(sum(counters[kind] for counters in verified.other.counters)) for kind in kinds)


def _count(verified: Verified) -> str:
    """The number of machines or cores, if there are several."""
    if verified.cores > 1:
        return f"{verified.cores} cores, "
    return f"{len(verified.parts)} x " if len(verified.parts) > 1 else ""


def _clocked(line: Callable[[Verified, Streamed], str]) -> Callable[[Verified], str]:
    """A line of the table for several machines that have a clock."""
    return lambda v: line(v, v.streamed) if v.streamed else "none on golden" if len(v.parts) > 1 else ""


#: Further lines of the table if there are several machines: their names, and the value for one network.
SEVERAL = {
    "cut after": lambda v: ", ".join(v.compiled.cascade.cuts),
    "bits, golden and one large golden machine": lambda v: "" if v.large_bits is None else str(v.large_bits),
    "cycles from result to result": _clocked(lambda v, streamed: f"{streamed.interval:,.0f}"),
    "one machine, cycles per inference": _clocked(
        lambda v, _: f"{v.single.latency:,}" if v.single else "the network does not fit"),
    "one machine, cycles from result to result": _clocked(lambda v, _: f"{v.single.interval:,.0f}" if v.single else ""),
    "throughput beside one machine": _clocked(
        lambda v, streamed: f"{v.single.interval / streamed.interval:.2f} times" if v.single else ""),
}


def _on_cores(line: Callable[[Verified], str]) -> Callable[[Verified], str]:
    """A line of the table for cores that have a clock."""
    return lambda v: line(v) if v.other.cycles else "none on golden"


#: Further lines of the table if cores share a memory.
SHARED = {
    "cycles of each core": _on_cores(
        lambda v: ", ".join(f"{counters[Counter.CYCLES]:,}" for counters in v.other.counters)),
    "cycles of all samples": _on_cores(lambda v: f"{v.other.cycles:,}"),
    "cycles from result to result": _on_cores(lambda v: f"{v.other.cycles / len(v.samples):,.0f}"),
}


def _percent(value: float) -> str:
    return f"{value:.2%}"
