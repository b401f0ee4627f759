"""Run samples on machines, in batches on all cores."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from concord.datasets.samples import Samples
from concord.firmware.cascade import Cascade
from concord.lib.processes import calls
from concord.spec.host.registers import EVENTS, Counter
from concord.spec.isa.memories import Mem
from concord.verification.cascade_session import CascadeSession, session_of

#: Counters that hold the largest value so far; all others are sums.
LARGEST = (Counter.EXCESS_PARTIAL, Counter.EXCESS_PRODUCT, Counter.EXCESS_OUTPUT)

_sessions: dict[str, CascadeSession] = {}  # The sessions of this worker process, by kind of machine.
_firmware: Cascade | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Batch:
    """The results of a batch of consecutive samples.

    Attributes:
        outputs:  Outputs of the network, uint16[samples, outputs].
        counters: For each machine, the increase of each counter during the batch.
        memories: For each machine, the contents of each memory in use after the batch, see `Session.memories`.
    """

    first: int
    outputs: np.ndarray
    counters: tuple[dict[Counter, int], ...]
    memories: tuple[dict[Mem, np.ndarray], ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Outcome:
    """The results of all samples. `memories` has an entry for each batch, by its first sample."""

    outputs: np.ndarray
    counters: tuple[dict[Counter, int], ...]
    memories: dict[int, tuple[dict[Mem, np.ndarray], ...]]


def one_sample(samples: Samples, index: int) -> np.ndarray:
    """One sample, without the padding after its last time step."""
    return samples.inputs[index] if samples.lengths is None else samples.inputs[index, : samples.lengths[index]]


def run_batch(kind: str, samples: list[np.ndarray], first: int) -> Batch:
    """Run a batch of samples in this worker process."""
    if kind not in _sessions:
        _sessions[kind] = session_of(_firmware, kind)
    session = _sessions[kind]
    session.counters()
    outputs = np.stack([session.infer(sample) for sample in samples])
    return Batch(first=first, outputs=outputs, counters=session.counters(), memories=session.memories())


def run_all(
    firmware: Cascade, samples: Samples, kinds: list[str], *, jobs: int, progress: Callable[[str, int], None]
) -> dict[str, Outcome]:
    """Run all samples on every kind of machine.

    Args:
        firmware: Firmware of the network.
        samples:  Samples to run.
        kinds:    Kinds of machines, by their names in `sim.machines.host.machine`.
        jobs:     Number of worker processes.
        progress: Called with a kind and the number of its samples that were done since the last call.
    """
    count = len(samples)
    size = min(50, -(-count // 4))
    parts = [(first, [one_sample(samples, index) for index in range(first, min(count, first + size))])
             for first in range(0, count, size)]
    batches = {kind: [] for kind in kinds}
    for (kind, *_), batch in calls(
            run_batch, [(kind, part, first) for first, part in parts for kind in kinds], jobs, _begin, (firmware,)):
        batches[kind].append(batch)
        progress(kind, len(batch.outputs))
    return {kind: _joined(sorted(done, key=lambda batch: batch.first)) for kind, done in batches.items()}


def differing_bits(left: Outcome, right: Outcome) -> int:
    """Number of bits in which outputs and memories differ."""
    return count_bits(left.outputs, right.outputs) + sum(
        _differing_words(memories, right.memories[first]) for first, memories in left.memories.items())


def first_sample(left: Outcome, right: Outcome) -> int:
    """The first sample with different outputs; if none has, the last of the first batch with different memories."""
    rows = np.flatnonzero((left.outputs != right.outputs).any(axis=1))
    if len(rows):
        return int(rows[0])
    ends = [*list(left.memories)[1:], len(left.outputs)]
    for first, end in zip(left.memories, ends, strict=True):
        if _differing_words(left.memories[first], right.memories[first]):
            return end - 1
    raise ValueError("no sample differs")


def differing_events(left: Outcome, right: Outcome) -> list[tuple[int, Counter]]:
    """Event counters that differ: the number of the machine, and the counter."""
    return [(k, counter) for k, counters in enumerate(left.counters) for counter in EVENTS
            if counters[counter] != right.counters[k][counter]]


def count_bits(left: np.ndarray, right: np.ndarray) -> int:
    """Number of bits in which two arrays of the same shape differ."""
    return int(np.bitwise_count(left ^ right).sum())


def _differing_words(left: tuple[dict, ...], right: tuple[dict, ...]) -> int:
    """Number of bits in which the memories of machines differ."""
    return sum(count_bits(words, other[mem]) for one, other in zip(left, right, strict=True)
               for mem, words in one.items())


def _begin(firmware: Cascade):
    """Initialise this worker process with its firmware."""
    global _firmware
    _firmware = firmware


def _joined(batches: list[Batch]) -> Outcome:
    counters = tuple(
        {counter: (max if counter in LARGEST else sum)(one[counter] for one in machine) for counter in machine[0]}
        for machine in zip(*(batch.counters for batch in batches), strict=True))
    return Outcome(
        outputs=np.concatenate([batch.outputs for batch in batches]),
        counters=counters,
        memories={batch.first: batch.memories for batch in batches},
    )
