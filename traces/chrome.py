"""Traces in the JSON format of Chrome, which ui.perfetto.dev and chrome://tracing open; a cycle is a microsecond."""

import json
from collections.abc import Sequence

from concord.traces.events import slices
from concord.traces.spans import TRACKS, MachineTrace


def chrome_text(traces: Sequence[MachineTrace]) -> str:
    """The text of a file of what machines did, each as a process with a thread for each unit."""
    events = (
        json.dumps({"pid": number, **event}, separators=(",", ":"))
        for number, trace in enumerate(traces, 1)
        for event in _events(number, trace)
    )
    return '{"displayTimeUnit":"ns","traceEvents":[\n' + ",\n".join(events) + "\n]}\n"


def _events(machine: int, trace: MachineTrace):
    """The events of a machine."""
    yield {"ph": "M", "name": "process_name", "args": {"name": trace.name}}
    for number, name in enumerate(TRACKS, 1):
        yield {"ph": "M", "tid": number, "name": "thread_name", "args": {"name": name}}
        yield {"ph": "M", "tid": number, "name": "thread_sort_index", "args": {"sort_index": number}}
    for one in slices(trace):
        track = {"tid": TRACKS.index(one.track) + 1}
        yield track | {
            "ph": "X",
            "ts": one.first,
            "dur": one.count,
            "name": one.name,
            "cat": one.category,
            "args": one.about,
        }
        for kind, arrows, at in (("s", one.leads, 0.25), ("f", one.ends, one.count - 0.25)):
            for arrow in arrows:
                yield track | {
                    "ph": kind,
                    "bp": "e",
                    "ts": one.first + at,
                    "id": f"{machine}.{arrow}",
                    "name": "waits for",
                    "cat": "flow",
                }
    for level in trace.levels:
        for first, count in zip(level.first.tolist(), level.level.tolist(), strict=True):
            yield {"ph": "C", "ts": first, "name": level.name, "args": {"words": count}}
