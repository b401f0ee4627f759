"""Traces as one HTML file with a viewer: it needs no server and no other file."""

import base64
import json
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from concord.traces.spans import ALL_STATES, COLUMNS, TRACKS, MachineTrace

_VIEWER = Path(__file__).with_name("viewer.html")
_MARK = "/*TRACE*/"


def page_text(traces: Sequence[MachineTrace]) -> str:
    """The text of a page of what machines did, with the viewer that shows it."""
    content = {"tracks": TRACKS, "states": ALL_STATES, "machines": [_machine(trace) for trace in traces]}
    # `<` would end the script that holds it.
    text = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    return _VIEWER.read_text().replace(_MARK, f"const TRACE = {text};")


def _machine(trace: MachineTrace) -> dict:
    """A machine, whose columns are numbers of 32 bits, deflated, in base 64."""
    flows = np.array(trace.flows(), np.int32).reshape(-1, 2)
    return {
        "name": trace.name,
        "causes": trace.causes,
        "layers": trace.layers,
        "texts": trace.texts,
        "columns": {name: _packed(getattr(trace.spans, name)) for name in COLUMNS},
        "layer": _packed(trace.layer),
        "address": _packed(trace.address),
        "flows": [_packed(flows[:, k]) for k in range(2)],
        "levels": [
            {"name": level.name, "first": _packed(level.first), "level": _packed(level.level)} for level in trace.levels
        ],
    }


def _packed(numbers: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(np.ascontiguousarray(numbers, "<i4").tobytes(), 6)).decode()
