"""Samples through machines, in batches on all cores."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass

import numpy as np
from concord.golden.host.firmware import Firmware
from concord.model.dataset import Samples
from concord.nnp.verify.session import Session
from concord.spec.memories import Mem
from concord.spec.registers import Counter

#: Counters that keep the largest value seen; the others add up.
LARGEST = (Counter.EXCESS_PARTIAL, Counter.EXCESS_PRODUCT, Counter.EXCESS_OUTPUT)

_sessions: dict[str, Session] = {}  # Of this worker process, by kind of machine.
_firmware: Firmware | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Batch:
    """What one machine did with samples [first, first + len(outputs)).

    Attributes:
        outputs:  uint16[samples, outputs].
        counters: What the batch added to each counter.
        memories: uint16[words, M] of each vector memory in use, after the batch.
    """

    first: int
    outputs: np.ndarray
    counters: dict[Counter, int]
    memories: dict[Mem, np.ndarray]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Outcome:
    """What one machine did with all samples; `memories` holds those after each batch, by its first sample."""

    outputs: np.ndarray
    counters: dict[Counter, int]
    memories: dict[int, dict[Mem, np.ndarray]]


def one_sample(samples: Samples, index: int) -> np.ndarray:
    """One sample without the padding behind its end."""
    return samples.inputs[index] if samples.lengths is None else samples.inputs[index, : samples.lengths[index]]


def run_batch(kind: str, samples: list[np.ndarray], first: int) -> Batch:
    """Run some samples in this worker."""
    from concord.sim.machines.host import machine

    if kind not in _sessions:
        _sessions[kind] = Session(machine(kind, _firmware.config), _firmware)
    session = _sessions[kind]
    session.counters()
    outputs = np.stack([session.infer(sample) for sample in samples])
    return Batch(first=first, outputs=outputs, counters=session.counters(), memories=session.memories())


def run_all(
    firmware: Firmware, samples: Samples, kinds: list[str], *, jobs: int, progress: Callable[[str, int], None]
) -> dict[str, Outcome]:
    """Run all samples on every kind of machine.

    Args:
        kinds:    As `sim.machines.host.machine` calls them.
        jobs:     Worker processes.
        progress: Called with a kind and how many more of its samples are done.
    """
    count = len(samples)
    size = min(50, -(-count // 4))
    context = multiprocessing.get_context("spawn")
    batches = {kind: [] for kind in kinds}
    with ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(firmware,)) as pool:
        futures: dict[Future, str] = {}
        for first in range(0, count, size):
            part = [one_sample(samples, index) for index in range(first, min(count, first + size))]
            futures |= {pool.submit(run_batch, kind, part, first): kind for kind in kinds}
        try:
            for future in as_completed(futures):
                batches[futures[future]].append(future.result())
                progress(futures[future], len(future.result().outputs))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {kind: _joined(sorted(done, key=lambda batch: batch.first)) for kind, done in batches.items()}


def differing_bits(left: Outcome, right: Outcome) -> int:
    """Bits in which outputs and vector memories differ."""
    count = count_bits(left.outputs, right.outputs)
    for first, memories in left.memories.items():
        count += sum(count_bits(words, right.memories[first][mem]) for mem, words in memories.items())
    return count


def first_sample(left: Outcome, right: Outcome) -> int:
    """The first sample whose outputs differ; else the last one of the first batch that leaves other memories."""
    rows = np.flatnonzero((left.outputs != right.outputs).any(axis=1))
    if len(rows):
        return int(rows[0])
    ends = [*list(left.memories)[1:], len(left.outputs)]
    for first, end in zip(left.memories, ends, strict=True):
        if any((words != right.memories[first][mem]).any() for mem, words in left.memories[first].items()):
            return end - 1
    raise ValueError("no sample differs")


def count_bits(left: np.ndarray, right: np.ndarray) -> int:
    """Bits in which two arrays of one shape differ."""
    return int(np.bitwise_count(left ^ right).sum())


def _begin(firmware: Firmware):
    """Give this worker its firmware."""
    global _firmware
    _firmware = firmware


def _joined(batches: list[Batch]) -> Outcome:
    counters = {
        counter: (max if counter in LARGEST else sum)(batch.counters[counter] for batch in batches)
        for counter in Counter
    }
    return Outcome(
        outputs=np.concatenate([batch.outputs for batch in batches]),
        counters=counters,
        memories={batch.first: batch.memories for batch in batches},
    )
