"""Trace files read back into SQLite, where their slices add up to counters."""

import json
import sqlite3

from concord.spec.host.registers import Counter
from concord.traces.spans import COUNTERS


def tables(content: str | bytes) -> sqlite3.Connection:
    """The slices of a trace file, of Chrome's JSON or of Perfetto's format, in the table `slices` of a database."""
    base = sqlite3.connect(":memory:")
    base.execute(
        "create table slices (machine integer, track text, category text, name text, first integer, count integer)"
    )
    rows = _of_chrome(content) if isinstance(content, str) else _of_perfetto(content)
    base.executemany("insert into slices values (?, ?, ?, ?, ?, ?)", rows)
    return base


def _of_chrome(text: str):
    events = json.loads(text)["traceEvents"]
    tracks = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    for event in events:
        if event["ph"] == "X":
            yield (
                event["pid"],
                tracks[event["pid"], event["tid"]],
                event["cat"],
                event["name"],
                event["ts"],
                event["dur"],
            )


def _of_perfetto(content: bytes):
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

    tracks, machines, opened = {}, {}, {}
    for packet in Trace.FromString(content).packet:
        if packet.HasField("track_descriptor"):
            said = packet.track_descriptor
            machines[said.uuid] = said.process.pid or machines.get(said.parent_uuid)
            tracks[said.uuid] = said.name
        elif packet.track_event.type == TrackEvent.TYPE_SLICE_BEGIN:
            opened.setdefault(packet.track_event.track_uuid, []).append((packet.timestamp, packet.track_event))
        elif packet.track_event.type == TrackEvent.TYPE_SLICE_END:
            first, event = opened[packet.track_event.track_uuid].pop()
            yield (
                machines[event.track_uuid],
                tracks[event.track_uuid],
                event.categories[0],
                event.name,
                first // 1000,
                (packet.timestamp - first) // 1000,
            )
    assert not any(opened.values()), "slices have no end"


def counters(base: sqlite3.Connection, machine: int) -> dict[Counter, int]:
    """The busy and wait counters of a machine, numbered from 1, as sums of slices."""
    asked = "select coalesce(sum(count), 0) from slices where machine = ? and track = ? and category = ?"
    return {counter: base.execute(asked, (machine, *names)).fetchone()[0] for names, counter in COUNTERS.items()}
