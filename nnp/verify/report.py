"""What `nnp verify` found out, as JSON and as one self-contained page."""

import json
from pathlib import Path

from concord.nnp.lib.files import write_all
from concord.nnp.verify import pictures
from concord.nnp.verify.tables import faults, verify_rows
from concord.nnp.verify.verification import Verified
from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).parents[1] / "templates"


def write_report(done: list[Verified], folder: Path) -> list[Path]:
    """Write verify.json and verify.html into `folder`."""
    files = {
        "verify.json": json.dumps([record(verified) for verified in done], indent=2) + "\n",
        "verify.html": page(done),
    }
    write_all(folder, files)
    return [folder / name for name in files]


def record(verified: Verified) -> dict:
    """Everything about one model, as JSON values."""
    firmware, model = verified.compiled.firmware, verified.model
    return {
        "model": verified.request.place,
        "preset": verified.preset,
        "digest": f"{firmware.config.digest:08x}",
        "machine": str(verified.request.kind),
        "data": model.data,
        "first": verified.request.first,
        "samples": len(verified.samples.labels),
        "equal": verified.equal,
        "accuracy": dict(verified.accuracies),
        "mismatching_bits": verified.bits,
        "golden_network_bits": verified.reference_bits,
        "differing_events": {counter.name: values for counter, values in verified.events.items()},
        "faults": faults([verified]),
        "cycles_per_inference": verified.cycles,
        "microseconds_per_inference": verified.microseconds,
        "clock_mhz": firmware.config.clock_mhz,
        "mvm_utilisation": verified.utilisation,
        "counters": {counter.name: value for counter, value in verified.other.counters.items()},
        "layer_error": dict(verified.errors),
        "memories": {name: {"used": used, "of": of} for name, (used, of) in verified.compiled.usage.items()},
        "sums": [
            {"product": b.product, "bits": b.bits, "accumulator_bits": b.has, "proven": b.proven, "clamped": b.clamped}
            for b in verified.compiled.bounds
        ],
        "provenance": {name: getattr(model.provenance, name) for name in model.provenance.__slots__},
        "seconds": dict(verified.times),
    }


def page(done: list[Verified]) -> str:
    """The page, its pictures inside."""
    loader = FileSystemLoader(TEMPLATES)
    environment = Environment(loader=loader, undefined=StrictUndefined, autoescape=True, trim_blocks=True)
    return environment.get_template("report.html.j2").render(
        models=done,
        rows=verify_rows(done),
        faults=faults(done),
        equal=all(verified.equal for verified in done),
        accuracy=pictures.accuracy(done),
        cycles=[pictures.cycles(verified) for verified in done],
        errors=[pictures.errors(verified) for verified in done],
    )
