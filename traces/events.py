"""The events that trace files hold, whatever their format: slices, arrows and counters of tracks."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from concord.traces.spans import ALL_STATES, TRACKS, MachineTrace

CHAIN = "chain"  #: Category of slices that show a chain at a unit; those of states lie in them.


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """A slice of a track.

    Attributes:
        track:    Name of the unit.
        first:    First clock cycle.
        count:    Number of clock cycles.
        category: CHAIN, or the state of the unit.
        name:     The layer, or what the unit waits for.
        about:    Further facts, by their names.
        leads:    Numbers of the arrows that begin here. ends: Of those that end here.
    """

    track: str
    first: int
    count: int
    category: str
    name: str
    about: dict[str, str | int]
    leads: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()


def slices(trace: MachineTrace) -> Iterator[Slice]:
    """The slices of a machine, track by track: each chain at a unit, followed by the states that lie in it."""
    s, leads, ends = trace.spans, {}, {}
    for number, (one, other) in enumerate(trace.flows()):
        leads.setdefault(one, []).append(number)
        ends.setdefault(other, []).append(number)
    columns = [getattr(s, name).tolist() for name in ("track", "first", "count", "state", "cause", "chain", "older")]
    new = np.append(True, (s.track[1:] != s.track[:-1]) | (s.chain[1:] != s.chain[:-1]))
    starts = np.flatnonzero(new)
    last = np.append(starts[1:], len(s)) - 1
    lengths = dict(zip(starts.tolist(), (s.first[last] + s.count[last] - s.first[starts]).tolist(), strict=True))
    for k, (track, first, count, state, cause, chain, older) in enumerate(zip(*columns, strict=True)):
        if k in lengths and chain >= 0:
            yield Slice(
                track=TRACKS[track],
                first=first,
                count=lengths[k],
                category=CHAIN,
                name=trace.layers[trace.layer[chain]] or "input, output",
                about=_about(trace, chain),
            )
        about = {"waits for chain": older, "of layer": trace.layers[trace.layer[older]]} if older >= 0 else {}
        yield Slice(
            track=TRACKS[track],
            first=first,
            count=count,
            category=ALL_STATES[state],
            name=trace.causes[cause] or ALL_STATES[state],
            about=about | ({"chain": chain} if chain >= 0 else {}),
            leads=tuple(leads.get(k, ())),
            ends=tuple(ends.get(k, ())),
        )


def _about(trace: MachineTrace, chain: int) -> dict[str, str | int]:
    address = int(trace.address[chain])
    return {"chain": chain, "address": address, "instructions": trace.texts[address]}
