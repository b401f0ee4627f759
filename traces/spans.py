"""What units of machines did in each clock cycle, as spans, and the counters that the spans add up to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from concord.firmware.layer_costs import STATES, UNITS
from concord.spec.host.registers import Counter

#: Names of units, each of which has a track.
PROGRAM, DECODER, BANKS = "program", "decoder", "banks of VectorRf"
FETCH, ENGINES, MFU, COPIES, GATHER = UNITS
TRACKS = (PROGRAM, DECODER, FETCH, ENGINES, MFU, COPIES, GATHER, BANKS)
BUSY, OPERANDS, OUTPUT = STATES
HELD = "held back"  #: A unit without work, because its next chain must wait; no counter counts it.
ALL_STATES = (*STATES, HELD)
#: The counter that spans of a track and a state add up to.
COUNTERS: Mapping[tuple[str, str], Counter] = {
    (PROGRAM, BUSY): Counter.CYCLES,
    (BANKS, BUSY): Counter.MVM_CONFLICT,
    **{
        (unit, state): counter
        for unit, counters in UNITS.items()
        for state, counter in zip(STATES, counters, strict=True)
        if counter is not None
    },
}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Spans:
    """Spans of units, all columns with one row for each span.

    Attributes:
        track: Index in TRACKS.
        first: First clock cycle.
        count: Number of clock cycles.
        state: Index in ALL_STATES.
        cause: Index of the reason for which it waits; 0 for none.
        chain: Number of the chain; -1 for none.
        older: Number of the chain for which it waits; -1 for none.
        via:   Index in TRACKS of the unit that works on that chain; -1 for none.
    """

    track: np.ndarray
    first: np.ndarray
    count: np.ndarray
    state: np.ndarray
    cause: np.ndarray
    chain: np.ndarray
    older: np.ndarray
    via: np.ndarray

    def __len__(self) -> int:
        return len(self.track)


COLUMNS = tuple(Spans.__slots__)


def joined(spans: Sequence[Spans]) -> Spans:
    """All of these spans, those of one track one after the other."""
    columns = {name: np.concatenate([getattr(one, name) for one in spans]) for name in COLUMNS}
    order = np.lexsort((columns["first"], columns["track"]))
    return Spans(**{name: column[order] for name, column in columns.items()})


def of_cycles(track: str, begin: int, values: Mapping[str, np.ndarray]) -> Spans:
    """Spans of one unit: neighbouring cycles in which all is the same.

    Args:
        track:  The unit.
        begin:  Clock cycle of the first value.
        values: For each column from `state` on, a value for each cycle; cycles with the state -1 have no span.
    """
    table = np.stack([values[name] for name in COLUMNS[3:]])
    starts = np.flatnonzero(np.append(True, (table[:, 1:] != table[:, :-1]).any(axis=0)))
    counts = np.diff(np.append(starts, table.shape[1]))
    kept = table[0, starts] >= 0
    starts, counts = starts[kept], counts[kept]
    return Spans(
        track=np.full(len(starts), TRACKS.index(track)),
        first=starts + begin,
        count=counts,
        **dict(zip(COLUMNS[3:], table[:, starts], strict=True)),
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Level:
    """How many words a queue holds: `level[k]` from cycle `first[k]` on."""

    name: str
    first: np.ndarray
    level: np.ndarray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MachineTrace:
    """What one machine did.

    Attributes:
        name:      Name of the firmware and of its machine.
        spans:     The spans; chains of several samples are numbered one after the other.
        causes:    Reasons to wait; the first one is empty.
        layers:    Names of layers; the first one is empty.
        layer:     Index of the layer of each chain.
        address:   Address of the first instruction of each chain.
        texts:     Instructions of the chains at each address.
        levels:    What its queues hold.
    """

    name: str
    spans: Spans
    causes: tuple[str, ...]
    layers: tuple[str, ...]
    layer: np.ndarray
    address: np.ndarray
    texts: dict[int, str]
    levels: tuple[Level, ...]

    @property
    def cycles(self) -> int:
        """Clock cycles of all samples."""
        return self.counters()[Counter.CYCLES]

    def counters(self) -> dict[Counter, int]:
        """The busy and wait counters that the spans add up to."""
        cycles = np.zeros((len(TRACKS), len(ALL_STATES)), np.int64)
        np.add.at(cycles, (self.spans.track, self.spans.state), self.spans.count)
        return {
            counter: int(cycles[TRACKS.index(track), ALL_STATES.index(state)])
            for (track, state), counter in COUNTERS.items()
        }

    def flows(self) -> list[tuple[int, int]]:
        """Arrows between spans, from one of the chain that was waited for to the one that waited for it.

        There is one arrow for each chain of a unit, and each chain that it waited for there: to the longest wait.
        """
        s, found = self.spans, []
        waits = np.flatnonzero((s.older >= 0) & (s.via >= 0) & ((s.older != s.chain) | (s.via != s.track)))
        longest: dict[tuple, int] = {}
        for k in waits.tolist():
            key = s.track[k], s.chain[k], s.older[k], s.via[k]
            if key not in longest or s.count[k] > s.count[longest[key]]:
                longest[key] = k
        width = len(self.layer) + 1
        keys = s.track * width + s.chain
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        for (_, _, older, via), k in longest.items():
            row = order[slice(*np.searchsorted(keys, [via * width + older, via * width + older + 1]))]
            before = row[s.first[row] < s.first[k] + s.count[k]]
            if len(before):
                found.append((int(before[-1]), k))
        return sorted(found)
