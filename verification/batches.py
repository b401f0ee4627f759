"""Run samples on machines, in batches on all cores; machines that are missing are built before, in parallel."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from concord.datasets.samples import Samples
from concord.firmware.cascade import Cascade
from concord.firmware.cascade_session import CascadeSession, session_of
from concord.lib.processes import calls, workers
from concord.lib.progress import Show
from concord.sim.machines.cache import under_way
from concord.sim.machines.cascade import cascade
from concord.sim.machines.kinds import MachineKind
from concord.spec.host.registers import EVENTS, Counter
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config

if TYPE_CHECKING:
    from concord.firmware.accelerator_session import AcceleratorSession

#: Counters that hold the largest value so far; all others are sums.
LARGEST = (Counter.EXCESS_PARTIAL, Counter.EXCESS_PRODUCT, Counter.EXCESS_OUTPUT)

#: The sessions of this worker process, by kind of machine, and their firmware, which `_begin` sets.
_sessions: "dict[str, CascadeSession | AcceleratorSession]" = {}
_firmware: Cascade


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Outcome:
    """The results of a batch of consecutive samples, or of all.

    Attributes:
        outputs:  Outputs of the network, uint16[samples, outputs].
        counters: For each machine, the increase of each counter.
        memories: For each batch by its first sample, and each machine, the contents of each memory in use after the
            batch, see `Session.memories`.
        cycles:   Clock cycles that all samples took together, on cores that share a memory.
    """

    outputs: np.ndarray
    counters: tuple[dict[Counter, int], ...]
    memories: dict[int, tuple[dict[Mem, np.ndarray], ...]]
    cycles: int = 0


def run_batch(kind: str, samples: list[np.ndarray], first: int, keep_state: bool = False, cores: int = 1) -> Outcome:
    """Run a batch of samples in this worker process, as parts of one sequence if states are kept."""
    if kind not in _sessions:
        _sessions[kind] = session_of(_firmware, kind, cores)
    session = _sessions[kind]
    session.counters()
    outputs = np.stack([session.infer(sample, keep_state=index > 0) for index, sample in enumerate(samples)]
                       ) if keep_state else session.infer_all(samples)
    return Outcome(outputs=outputs, counters=session.counters(), memories={first: session.memories()},
                   cycles=0 if isinstance(session, CascadeSession) else session.cycles)


def run_all(
    firmware: Cascade, samples: Samples, kinds: Sequence[str], *, jobs: int, progress: Callable[[str, int], None],
    keep_state: bool = False, cores: int = 1, scheduler: str = "",
) -> dict[str, Outcome]:
    """Run all samples on every kind of machine.

    Args:
        firmware: Firmware of the network.
        samples:  Samples to run.
        kinds:    Kinds of machines, by their names in `sim.machines.host.machine`.
        jobs:     Number of worker processes.
        progress: Called with a kind and the number of its samples that were done since the last call.
        keep_state: Whether samples are parts of one sequence; they are one batch.
        cores:    Number of cores that share a memory; all samples are one batch then.
        scheduler: Address of the scheduler of a cluster, whose workers run the batches; empty for this computer.
    """
    count = len(samples)
    size, batch = min(50, -(-count // 4)), firmware.first.batch
    size = count if keep_state or cores > 1 else -(-size // batch) * batch
    parts = [(first, list(samples.part(slice(first, first + size)))) for first in range(0, count, size)]
    batches = {kind: [] for kind in kinds}
    for (kind, *_), batch in calls(
            run_batch, [(kind, part, first, keep_state, cores) for first, part in parts for kind in kinds], jobs,
            _begin, (firmware,), scheduler=scheduler, extra="" if kinds == [MachineKind.GOLDEN] else "sim"):
        batches[kind].append(batch)
        progress(kind, len(batch.outputs))
    return {kind: _joined(sorted(done, key=lambda batch: min(batch.memories))) for kind, done in batches.items()}


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
    """Initialise this worker process with its firmware; a worker of a cluster may have had another one."""
    global _firmware
    while _sessions:
        with _sessions.popitem()[1]:
            pass
    _firmware = firmware


def _joined(batches: list[Outcome]) -> Outcome:
    counters = tuple(
        {counter: (max if counter in LARGEST else sum)(one[counter] for one in machine) for counter in machine[0]}
        for machine in zip(*(batch.counters for batch in batches), strict=True))
    return Outcome(outputs=np.concatenate([batch.outputs for batch in batches]), counters=counters,
                   memories={first: held for batch in batches for first, held in batch.memories.items()},
                   cycles=sum(batch.cycles for batch in batches))


SECONDS = 2  #: Seconds between two looks at the builds that are under way.


class Builds:
    """Builds of several pipelines of machines. All begin at once, and continue while other machines already run.

    Each build has a process of its own, even if there are fewer cores than builds: most of the time a build uses one
    core only.

    Args:
        kind:    Kind of machine, by its name in `sim.machines.host.machine`.
        rows:    Configurations of the machines of each pipeline; equal ones are built once.
        cores:   Number of cores that share a memory.
    """

    def __init__(self, kind: str, rows: Iterable[Sequence[Config]], cores: int = 1):
        distinct = [] if kind == MachineKind.GOLDEN or MachineKind(kind).port else list(dict.fromkeys(map(tuple, rows)))
        self._pool = workers(max(1, len(distinct)))
        self._done: dict[tuple[Config, ...], Future] = {
            configs: self._pool.submit(build, kind, configs, cores) for configs in distinct}

    def wait(self, configs: Sequence[Config], show: Show):
        """Wait until the machines are built, and show how far the builds are.

        Raises:
            RuntimeError: a tool failed.
            ValueError:   hardware is not generated for such a machine.
        """
        if tuple(configs) not in self._done:  # golden and boards are not built
            return
        build = self._done[tuple(configs)]
        while not wait([build], SECONDS).done:
            for name, (compiled, sources) in under_way().items():
                if sources:
                    show(f"compile {name}", compiled, sources, "")
                else:
                    show(f"{'synthesise' if name.startswith('netlist-') else 'verilate'} {name}", 0, 1, "")
        build.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error, *_):
        # After a failure the remaining builds are not needed.
        self._pool.shutdown(wait=error is None, cancel_futures=True)


def build(kind: str, configs: Sequence[Config], cores: int = 1):
    """Build machines by starting and closing them, as the start makes whatever is missing."""
    if cores > 1:
        from concord.firmware.accelerator_session import accelerator_of
        from concord.sim.machines.accelerators import accelerator_machine

        made = accelerator_machine(kind, accelerator_of(configs[0], cores))
    else:
        made = cascade(kind, configs)
    made.close()
