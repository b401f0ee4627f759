"""A trainer in numpy: programs, one instruction after the other; several of them, in turns up to their rendezvous."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np
from concord.golden.lazy.lazy_update import Counts
from concord.golden.lazy.tensor_layers import whole
from concord.golden.lib.memory_words import MemoryWords
from concord.golden.trainer.copying import copy, exchanged, shares
from concord.golden.trainer.core import RefusedInstruction, TrainerCore, refuse
from concord.golden.trainer.pooling import add, pool, pool_back
from concord.golden.trainer.product import product
from concord.golden.trainer.summary import Summary, together
from concord.golden.trainer.update import check_measure, check_underflow, measure, update
from concord.spec.numbers.lazy import E_MIN
from concord.spec.trainer.config import LOOP_DEPTH, MOST_PASSES, TrainerConfig
from concord.spec.trainer.instructions import (
    SIZES,
    MeasureKind,
    TrainerError,
    TrainerInstruction,
    TrainerOp,
    broken_rule,
    decode,
)
from concord.spec.trainer.registers import MANTISSA_BITS, TrainerCounter, TrainerRegister, rate_bits, rate_of
from concord.spec.trainer.views import TrainerView

_ENGINES: dict[TrainerOp, Callable[[TrainerCore, TrainerInstruction], None]] = {
    TrainerOp.COPY: copy,
    TrainerOp.PRODUCT: product,
    TrainerOp.POOL: pool,
    TrainerOp.POOL_BACK: pool_back,
    TrainerOp.ADD: add,
    TrainerOp.UPDATE: update,
}
_WORD = 1 << 32


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where a core waits for others.

    Attributes:
        op:      Opcode of the instruction that waits.
        cores:   Mask of the members.
        lengths: What the core has measured of each exponent.
        summary: Summary of its updates.
    """

    op: TrainerOp
    cores: int
    lengths: tuple[int, ...] = ()
    summary: Summary | None = None


#: What the members of a rendezvous have brought, in their order; None where one of them has stopped.
Meeting = Sequence[Rendezvous] | None


class Trainer:
    """A core that trains.

    Args:
        config: Sizes.
        server: Server memory from DRAM_BASE to LIMIT, uint8[words, 16], or what indexes as such an array does.
        number: Number of the core, which is its bit in masks.

    Attributes:
        core:    State that instructions work on.
        error:   Why the last program stopped.
        address: Address of the instruction at which it stopped.
        repeats: How often `repeat` went back, in all programs.
    """

    def __init__(self, config: TrainerConfig, server: MemoryWords, number: int = 0):
        self.config, self.core, self.number = config, TrainerCore(config=config, server=server), number
        self._program: list[int] = []
        self._decoded: dict[int, TrainerInstruction] = {}
        self.error, self.address = TrainerError.NONE, 0
        self.instructions = self.repeats = 0
        self._forget()

    @property
    def server(self) -> MemoryWords:
        """Server memory."""
        return self.core.server

    def load(self, program: Sequence[int]):
        """Take a program. Bases and exponents stay, so that the programs of a step may follow each other.

        Raises:
            ValueError: it has more words than the instruction buffer.
        """
        if len(program) > self.config.instructions:
            raise ValueError(
                f"the program has {len(program)} words, and the instruction buffer holds {self.config.instructions}"
            )
        self._program = [*program, *[0] * (self.config.instructions - len(program))]
        self._decoded = {}

    def reset(self):
        """Clear bases, exponents, the error and the sequencer; memories and rates stay."""
        self.core.clear()
        self._forget()
        self.error, self.address = TrainerError.NONE, 0

    def clear_counters(self):
        """Set all counters to 0."""
        self.core.counts, self.instructions, self.repeats = Counts(), 0, 0

    def write_register(self, register: TrainerRegister, value: int):
        """Write RATE or DECAY; the rest of the control port belongs to whoever drives the core."""
        mantissa, exponent = rate_of(value)
        name = {TrainerRegister.RATE: "rate", TrainerRegister.DECAY: "decay"}[register]
        setattr(self.core, name, whole(np.array([mantissa]), exponent, MANTISSA_BITS))

    def read_register(self, address: int) -> int:
        """Read what is not the control port's own: errors, digest, rates, counters, bases, exponents; 0 elsewhere."""
        core, register = self.core, TrainerRegister
        counts = core.counts
        counted = {
            TrainerCounter.INSTRUCTIONS: self.instructions,
            TrainerCounter.REPEATS: self.repeats,
            TrainerCounter.STEPS: counts.steps,
            TrainerCounter.CHANGES: counts.changes,
            TrainerCounter.ROUNDED: counts.rounded,
            TrainerCounter.SATURATIONS: counts.saturations,
        }
        found: dict[int, int] = {
            register.ERROR: self.error,
            register.ERROR_ADDRESS: self.address,
            register.DIGEST: self.config.digest,
            register.LIMIT: len(core.server),
        }
        found |= {
            register.RATE: rate_bits(int(core.rate.mantissas.item()), int(core.rate.exponent.item())),
            register.DECAY: rate_bits(int(core.decay.mantissas.item()), int(core.decay.exponent.item())),
        }
        found |= {register.COUNTERS + 4 * k: min(count, _WORD - 1) for k, count in counted.items()}
        found |= {register.BASES + 4 * k: base % _WORD for k, base in enumerate(core.bases)}
        found |= {register.EXPONENTS + 4 * k: each.now - E_MIN for k, each in enumerate(core.exponents)}
        return int(found.get(address, 0))

    def run(self, first: int = 0, second: int = 0) -> TrainerError:
        """Execute the program of a core that works alone.

        Args:
            first, second: What R0 and R1 begin with: words of input and of output, counted from DRAM_BASE.
        """
        return run_together([self], [(first, second)])[0]

    def execution(self, first: int, second: int) -> Generator[Rendezvous, Meeting, None]:
        """Execute the program: yields where it waits for other cores, and is sent what they bring."""
        self.core.bases[:2] = first, second
        self.core.views.clear()
        self._forget()
        self.error, self.address = TrainerError.NONE, 0
        try:
            while not self._ended:
                yield from self._step()
        except RefusedInstruction as refused:
            self.error = refused.error

    def _forget(self):
        """Bring the sequencer to its first state."""
        self._next, self._loops, self._ended = 0, [], False
        self._again, self._passes = False, 0

    def _step(self) -> Generator[Rendezvous, Meeting, None]:
        """Execute one instruction."""
        self.address = self._next
        found = self._decoded.get(self._next) or self._fetched()
        self._decoded[self._next] = found
        self._next += SIZES[found.op]
        if found.op in _ENGINES:
            _ENGINES[found.op](self.core, found)
        elif found.op in _TOGETHER:
            yield from _TOGETHER[found.op](self, found)
        else:
            _ALONE[found.op](self, found)
        self.instructions += 1

    def _fetched(self) -> TrainerInstruction:
        """The legal instruction at the next address."""
        refuse(self._next >= len(self._program), TrainerError.END, "the program runs past the instruction buffer")
        try:
            found = decode(self._program, self._next)
        except IndexError:
            raise RefusedInstruction(TrainerError.END, "a view runs past the end of the instruction buffer") from None
        if found is None:
            raise RefusedInstruction(TrainerError.ILLEGAL, "there is no such instruction")
        wrong = broken_rule(found, self.config)
        refuse(wrong, TrainerError.ILLEGAL, wrong)
        return found

    def _tensor(self, i):
        self.core.views[i["v"]] = TrainerView.of(i)

    def _loop(self, i):
        refuse(
            not i["count"] or len(self._loops) == LOOP_DEPTH, TrainerError.LOOP, "a loop repeats 0 times or is too deep"
        )
        self._loops.append([self._next, i["count"]])

    def _end_loop(self, _):
        refuse(not self._loops, TrainerError.LOOP, "end_loop without loop")
        innermost = self._loops[-1]
        innermost[1] -= 1
        if innermost[1]:
            self._next = innermost[0]
        else:
            self._loops.pop()

    def _repeat(self, i):
        first = self._loops[-1][0] if self._loops else 0
        refuse(
            not first <= i["target"] < self.address,
            TrainerError.LOOP,
            "the target of a repeat lies before it and within the innermost loop",
        )
        refuse(self._again and self._passes == MOST_PASSES, TrainerError.AGAIN, "the exponents do not come to rest")
        self._passes = self._passes + 1 if self._again else 0
        if self._again:
            self._again, self._next = False, i["target"]
            self.repeats += 1

    def _end(self, _):
        refuse(self._loops, TrainerError.LOOP, "the program ends within a loop")
        self._ended = True

    def _write(self, i):
        self.core.bases[i["r"]] = i["value"]

    def _add(self, i):
        total = self.core.bases[i["r"]] + i["value"]
        self.core.bases[i["r"]] = (total + _WORD // 2) % _WORD - _WORD // 2

    def _swap(self, i):
        bases = self.core.bases
        bases[i["r"]], bases[i["q"]] = bases[i["q"]], bases[i["r"]]

    def _meet(self, i, lengths=(), summary=None) -> Generator[Rendezvous, Meeting, Sequence[Rendezvous]]:
        """Wait for the other cores of the mask, if there are any."""
        mine = Rendezvous(i.op, i["cores"], lengths, summary)
        self._check_member(mine.cores)
        if mine.cores in (0, 1 << self.number):
            return [mine]
        found = yield mine
        refuse(found is None, TrainerError.PEER, "a core of the mask has stopped, or waits with another mask")
        assert found is not None
        return found

    def _check_member(self, cores):
        refuse(cores and not cores >> self.number & 1, TrainerError.PEER, "the mask lacks the core itself")

    def _barrier(self, i):
        yield from self._meet(i)

    def _sum(self, i):
        regions = shares(self.core, i)
        self._check_member(i["cores"])
        mine = (i["cores"] & (1 << self.number) - 1).bit_count()
        exchanged(self.core, i, regions[mine], False)
        yield from self._meet(i)
        for region in regions[:mine] + regions[mine + 1 :]:
            exchanged(self.core, i, region, True)
        yield from self._meet(i)

    def _measure(self, i):
        core = self.core
        check_measure(core, i)
        numbers = (i["e"], i["ew"], i["eg"]) if i["kind"] == MeasureKind.UPDATE else (i["e"],)
        own = tuple(core.exponents[number].length for number in numbers)
        met = yield from self._meet(i, own, core.summary)
        summary = together([each.summary for each in met if each.summary], core.summary)
        self._take_lengths(numbers, [max(found) for found in zip(*(each.lengths for each in met), strict=True)])
        try:
            check_underflow(core, i, summary)
        except RefusedInstruction:
            self._take_lengths(numbers, own)
            raise
        self._again |= measure(core, i, summary)

    def _take_lengths(self, numbers, lengths):
        for number, length in zip(numbers, lengths, strict=True):
            self.core.exponents[number].length = length


_TOGETHER = {TrainerOp.BARRIER: Trainer._barrier, TrainerOp.SUM: Trainer._sum, TrainerOp.MEASURE: Trainer._measure}
_ALONE = {
    TrainerOp.TENSOR: Trainer._tensor,
    TrainerOp.LOOP: Trainer._loop,
    TrainerOp.END_LOOP: Trainer._end_loop,
    TrainerOp.REPEAT: Trainer._repeat,
    TrainerOp.END: Trainer._end,
    TrainerOp.S_WR: Trainer._write,
    TrainerOp.S_ADD: Trainer._add,
    TrainerOp.SWAP: Trainer._swap,
}


def run_together(trainers: Sequence[Trainer], bases: Sequence[tuple[int, int]]) -> list[TrainerError]:
    """Execute the programs of several cores, each in its turn up to its rendezvous, and give their errors.

    Args:
        trainers: The cores, of which number k is `trainers[k]`, or one core of any number.
        bases:    What R0 and R1 of each core begin with.
    """
    numbers = [trainer.number for trainer in trainers]
    runs = {each.number: each.execution(*two) for each, two in zip(trainers, bases, strict=True)}
    waiting: dict[int, Rendezvous] = {}
    send: dict[int, Meeting] = dict.fromkeys(numbers)
    while send:
        for number in list(send):
            try:
                waiting[number] = runs[number].send(send.pop(number))
            except StopIteration:
                waiting.pop(number, None)
        for number, rendezvous in waiting.items():
            members = [other for other in range(rendezvous.cores.bit_length()) if rendezvous.cores >> other & 1]
            met = [waiting.get(other) for other in members]
            if all(each and (each.op, each.cores) == (rendezvous.op, rendezvous.cores) for each in met):
                send[number] = [each for each in met if each]
        if not send:  # Nobody can go on: whoever waits has a partner that never comes.
            send = dict.fromkeys(waiting)
        waiting = {number: rendezvous for number, rendezvous in waiting.items() if number not in send}
    return [trainer.error for trainer in trainers]
