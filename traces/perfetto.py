"""Traces in Perfetto's own format, which ui.perfetto.dev opens; a cycle is a microsecond."""

import io
from collections.abc import Sequence

from concord.lib.extras import require
from concord.traces.events import slices
from concord.traces.spans import TRACKS, MachineTrace

_CYCLE = 1000  #: Nanoseconds.
_SEQUENCE = 1


def perfetto_bytes(traces: Sequence[MachineTrace]) -> bytes:
    """The content of a file of what machines did, each as a process with a track for each unit.

    Raises:
        ValueError: the package `perfetto` is not installed.
    """
    require("trace")
    from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

    file = io.BytesIO()
    builder = StreamingTraceProtoBuilder(file)
    for number, trace in enumerate(traces, 1):
        _write(builder, number, trace)
    return file.getvalue()


def _write(builder, machine: int, trace: MachineTrace) -> None:
    """Write one machine."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

    base = machine * 1000
    packet = builder.create_packet()
    packet.track_descriptor.uuid = base
    packet.track_descriptor.process.pid = machine
    packet.track_descriptor.process.process_name = trace.name
    builder.write_packet(packet)
    names = [*TRACKS, *(level.name for level in trace.levels)]
    for k, name in enumerate(names, 1):
        packet = builder.create_packet()
        packet.track_descriptor.uuid, packet.track_descriptor.parent_uuid = base + k, base
        packet.track_descriptor.name, packet.track_descriptor.sibling_order_rank = name, k
        if k > len(TRACKS):
            packet.track_descriptor.counter.unit_name = "words"
        builder.write_packet(packet)

    def event(time: int, kind: int, track: int):
        packet = builder.create_packet()
        packet.timestamp, packet.trusted_packet_sequence_id = time * _CYCLE, _SEQUENCE
        packet.track_event.type, packet.track_event.track_uuid = kind, base + track
        return packet

    ends = []  # of slices that lie in each other, on the present track
    for one in slices(trace):
        track = TRACKS.index(one.track) + 1
        while ends and (ends[-1][1] != track or ends[-1][0] <= one.first):
            builder.write_packet(event(ends[-1][0], TrackEvent.TYPE_SLICE_END, ends.pop()[1]))
        packet = event(one.first, TrackEvent.TYPE_SLICE_BEGIN, track)
        said = packet.track_event
        said.name = one.name
        said.categories.append(one.category)
        said.flow_ids.extend(machine << 32 | arrow for arrow in one.leads)
        said.terminating_flow_ids.extend(machine << 32 | arrow for arrow in one.ends)
        for name, value in one.about.items():
            note = said.debug_annotations.add()
            note.name = name
            if isinstance(value, str):
                note.string_value = value
            else:
                note.int_value = value
        builder.write_packet(packet)
        ends.append((one.first + one.count, track))
    while ends:
        builder.write_packet(event(ends[-1][0], TrackEvent.TYPE_SLICE_END, ends.pop()[1]))
    for k, level in enumerate(trace.levels, len(TRACKS) + 1):
        for first, count in zip(level.first.tolist(), level.level.tolist(), strict=True):
            packet = event(first, TrackEvent.TYPE_COUNTER, k)
            packet.track_event.counter_value = count
            builder.write_packet(packet)
