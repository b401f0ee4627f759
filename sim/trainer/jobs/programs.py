"""What engines get of a program: golden executes it, and keeps for each engine the jobs, and what they measure."""

from collections.abc import Generator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace

import numpy as np
from concord.golden.trainer.copying import shares
from concord.golden.trainer.core import RefusedInstruction, TrainerCore
from concord.golden.trainer.memory import Seen
from concord.golden.trainer.summary import Summary
from concord.golden.trainer.trainer import Meeting, Rendezvous, Trainer
from concord.sim.trainer.jobs.copies import between, copy_job
from concord.sim.trainer.jobs.pooling import pooling_job
from concord.sim.trainer.jobs.products import product_job
from concord.sim.trainer.jobs.updates import update_job
from concord.sim.trainer.jobs.views import ANY_PLANES
from concord.spec.numbers.lazy import E_MIN
from concord.spec.trainer.config import LANES, SUM_PLANES, TrainerConfig
from concord.spec.trainer.instructions import Space, TrainerError, TrainerInstruction, TrainerOp, decode
from concord.spec.trainer.views import TrainerView


def _summed(core: TrainerCore, i: TrainerInstruction, number: int) -> list[tuple[str, dict]]:
    """The jobs of a `sum`: the rows go to the region of the core, and those of other members are added."""
    regions, mine = shares(core, i), (i["cores"] & (1 << number) - 1).bit_count()
    view = regions[0].view
    rows = TrainerView(space=Space.ACCUMULATORS, planes=SUM_PLANES, blocks=2, offset=i["acc"], n1=view.n1, n2=view.n2)
    seen = Seen(replace(rows, pitch1=view.n2, pitch2=1), 0)
    others = [regions[k] for k in range(len(regions)) if k != mine]
    return [between(regions[mine], seen, add=0), *(between(seen, region, add=1) for region in others)]


_JOBS = {
    TrainerOp.COPY: copy_job,
    TrainerOp.PRODUCT: lambda core, i: ("tensor", product_job(core, i)),
    TrainerOp.UPDATE: lambda core, i: ("update", update_job(core, i)),
    **dict.fromkeys(
        (TrainerOp.POOL, TrainerOp.POOL_BACK, TrainerOp.ADD), lambda core, i: ("pooling", pooling_job(core, i))
    ),
}
_WRITES_ROWS = TrainerOp.PRODUCT  #: Instructions of other opcodes read the rows that they name.


@dataclass(slots=True, kw_only=True, eq=False)
class Flight:
    """An instruction that an engine executes.

    Attributes:
        address:  Its address.
        op:       Its opcode.
        engine:   Name of the engine.
        job:      Fields of its job.
        reach:    Words and rows that it reads or writes: space, range, whether it writes.
        length:   Length that its end tells, and for an update that of T.
        momentum: See `length`.
        summary:  Summary of updates behind it.
        words:    Words of exponents that it reads or writes, by number: 16 bytes.
    """

    address: int
    op: TrainerOp
    engine: str
    job: dict
    reach: list[tuple[Space, range, bool]] = field(default_factory=list)
    length: int = 0
    momentum: int = 0
    summary: Summary | None = None
    words: dict[int, bytes] = field(default_factory=dict)

    def conflicts(self, other: "Flight") -> bool:
        """Whether one writes what the other one reads or writes."""
        return any(
            space == other_space and (writes or written) and range(max(one.start, two.start), min(one.stop, two.stop))
            for space, one, writes in self.reach
            for other_space, two, written in other.reach
        )


class _ObservedCore(TrainerCore):
    """A core that keeps what its instructions reach."""

    def check(self, seen: Seen, name: str, extent: range | None = None, **options) -> range:
        found = super().check(seen, name, extent, **options)
        self.reach.append((seen.view.space, found, options.get("written", False)))
        return found

    def check_rows(self, first: int, count: int):
        super().check_rows(first, count)
        self.reach.append((Space.ACCUMULATORS, range(first, first + count), self.writes_rows))


class ObservedTrainer(Trainer):
    """Golden, which keeps what engines get of its programs.

    Attributes:
        flights:  Instructions that engines execute, in the order of the program.
        meetings: What the members of each rendezvous have brought, from the core on.
    """

    def __init__(self, config: TrainerConfig, server: np.ndarray, number: int = 0):
        super().__init__(config, server, number)
        self.core = _ObservedCore(config=config, server=server)
        self.flights: list[Flight] = []
        self.meetings: list[list[Rendezvous]] = []

    def _meet(self, i, *brought) -> Generator[Rendezvous, Meeting, Sequence[Rendezvous]]:
        found = yield from super()._meet(i, *brought)
        if i["cores"] not in (0, 1 << self.number):
            own = Rendezvous(i.op, i["cores"], *deepcopy(brought))
            self.meetings.append([own, *deepcopy(found)])
        return found

    def _step(self) -> Generator[Rendezvous, Meeting, None]:
        core, found = self.core, self._decoded.get(self._next)
        if found is None and self._next < len(self._program):
            found = decode([*self._program, 0], self._next)
        if found is not None and found.op == TrainerOp.SUM:
            yield from self._sum_step(found)
            return
        core.reach, core.writes_rows = [], found is not None and found.op == _WRITES_ROWS
        if found is None or found.op not in _JOBS:
            yield from super()._step()
            return
        address, before = self._next, [exponent.length for exponent in core.exponents]
        made = self._made(found)
        for exponent in core.exponents:
            exponent.length = 0
        try:
            yield from super()._step()
        finally:
            own = [exponent.length for exponent in core.exponents]
            for exponent, length in zip(core.exponents, before, strict=True):
                exponent.length = max(exponent.length, length)
        assert made is not None
        engine, job, words = made
        flight = Flight(address=address, op=found.op, engine=engine, job=job, reach=core.reach, words=words)
        if found.op == TrainerOp.UPDATE:
            flight.length, flight.momentum = own[found["eg"]], own[found["ev"]]
            flight.summary = replace(core.summary)
        else:
            flight.length = max(own)
        if found.op == TrainerOp.COPY and job["to"]["space"] == Space.EXPONENTS:
            flight.words = _words(core, core.seen(found["to"], ANY_PLANES, "to"))
        self.flights.append(flight)

    def _sum_step(self, found: TrainerInstruction) -> Generator[Rendezvous, Meeting, None]:
        """A `sum`, which waits for everything before it; one that ends with PEER has stored its rows."""
        address, jobs = self._next, []
        self.core.reach, self.core.writes_rows = [], False
        with suppress(RefusedInstruction, IndexError):
            jobs = _summed(self.core, found, self.number)
        try:
            yield from super()._step()
        except RefusedInstruction as refused:
            jobs = jobs[: refused.error == TrainerError.PEER]
            raise
        finally:
            self.flights += [Flight(address=address, op=found.op, engine=engine, job=job) for engine, job in jobs]

    def _made(self, found: TrainerInstruction) -> tuple[str, dict, dict[int, bytes]] | None:
        """Engine, job and the words of exponents that are read; None where the instruction is refused."""
        try:
            engine, job = _JOBS[found.op](self.core, found)
            words = {}
            if found.op == TrainerOp.COPY and not found["zeros"]:
                source = self.core.seen(found["source"], ANY_PLANES, "source")
                words = _words(self.core, source) if source.view.space == Space.EXPONENTS else {}
        except (RefusedInstruction, IndexError, ValueError):
            return None
        return engine, job, words


def _words(core: TrainerCore, seen: Seen) -> dict[int, bytes]:
    """The words of exponents that a view sees, by number; those that are not there are left out."""
    rows, inside = seen.rows()
    numbers = {int(word) for word in (seen.offsets + rows[inside]).ravel()} if inside.any() else set()
    every = [exponent.now - E_MIN for exponent in core.exponents]
    words = len(every) // LANES
    return {word: bytes(every[LANES * word : LANES * (word + 1)]) for word in numbers if 0 <= word < words}
