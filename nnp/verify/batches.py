"""Run samples on machines, in batches on all cores."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from concord.golden.host.cascade import Cascade
from concord.golden.host.firmware import Firmware
from concord.golden.lib.processes import calls
from concord.model.data.samples import Samples
from concord.nnp.verify.cascade_session import CascadeSession, session_of
from concord.nnp.verify.session import Session
from concord.spec.memories import Mem
from concord.spec.registers import Counter

#: Counters that hold the largest value so far; all others are sums.
LARGEST = (Counter.EXCESS_PARTIAL, Counter.EXCESS_PRODUCT, Counter.EXCESS_OUTPUT)

_sessions: dict[str, Session | CascadeSession] = {}  # The sessions of this worker process, by kind of machine.
_firmware: Firmware | Cascade | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Batch:
    """The results of one machine, or of several in a row, for a batch of consecutive samples.

    Counters and memories of several machines have keys with the number of the machine in front: (1, Mem.INITIAL_VRF).

    Attributes:
        outputs:  Outputs of the network, uint16[samples, outputs].
        counters: Increase of each counter during the batch.
        memories: Contents of each memory in use after the batch, as `Session.memories` gives them.
    """

    first: int
    outputs: np.ndarray
    counters: dict[Counter, int]
    memories: dict[Mem, np.ndarray]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Outcome:
    """The results of one machine for all samples. `memories` has an entry for each batch, by its first sample."""

    outputs: np.ndarray
    counters: dict[Counter, int]
    memories: dict[int, dict[Mem, np.ndarray]]


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
    firmware: Firmware | Cascade, samples: Samples, kinds: list[str], *, jobs: int, progress: Callable[[str, int], None]
) -> dict[str, Outcome]:
    """Run all samples on every kind of machine.

    Args:
        firmware: Firmware of the network, for one machine or for several.
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
    count = count_bits(left.outputs, right.outputs)
    for first, memories in left.memories.items():
        count += sum(count_bits(words, right.memories[first][mem]) for mem, words in memories.items())
    return count


def first_sample(left: Outcome, right: Outcome) -> int:
    """The first sample with different outputs; if none has, the last of the first batch with different memories."""
    rows = np.flatnonzero((left.outputs != right.outputs).any(axis=1))
    if len(rows):
        return int(rows[0])
    ends = [*list(left.memories)[1:], len(left.outputs)]
    for first, end in zip(left.memories, ends, strict=True):
        if any((words != right.memories[first][mem]).any() for mem, words in left.memories[first].items()):
            return end - 1
    raise ValueError("no sample differs")


def count_bits(left: np.ndarray, right: np.ndarray) -> int:
    """Number of bits in which two arrays of the same shape differ."""
    return int(np.bitwise_count(left ^ right).sum())


def _begin(firmware: Firmware | Cascade):
    """Initialise this worker process with its firmware."""
    global _firmware
    _firmware = firmware


def _joined(batches: list[Batch]) -> Outcome:
    counters = {
        key: (max if (key[1] if isinstance(key, tuple) else key) in LARGEST else sum)(
            batch.counters[key] for batch in batches)
        for key in batches[0].counters
    }
    return Outcome(
        outputs=np.concatenate([batch.outputs for batch in batches]),
        counters=counters,
        memories={batch.first: batch.memories for batch in batches},
    )
