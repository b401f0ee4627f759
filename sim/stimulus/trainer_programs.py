"""Random programs for a core that trains, with the server memory that they begin from.

A program fills on-chip memory, accumulators and exponents from server memory, then does one thing after the other with
random views, see `sim.stimulus.trainer_parts`, and at the end may do something that is refused. Each part is tried on
golden first; parts that golden refuses are made anew.
"""

from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
from concord.golden.trainer.trainer import Trainer
from concord.sim.stimulus.trainer_parts import PARTS, SMALL, TrainerPart
from concord.spec.trainer.config import LANES, NONE, SUM_PLANES
from concord.spec.trainer.instructions import FIELDS, Space, TrainerError, TrainerOp, instruction
from concord.spec.trainer.registers import TrainerRegister, rate_bits
from concord.spec.trainer.views import TrainerView

SERVER_WORDS = 2048  #: Words of server memory; the first part of it holds what a program begins with.
_CHIP = SMALL.exponents // LANES
_ACCUMULATORS = _CHIP + SMALL.words
#: Words of server memory that programs fill each memory from, and to which `dump` stores it.
DUMP = {
    Space.EXPONENTS: range(_CHIP),
    Space.CHIP: range(_CHIP, _ACCUMULATORS),
    Space.ACCUMULATORS: range(_ACCUMULATORS, _ACCUMULATORS + 2 * SUM_PLANES * SMALL.accumulator_rows),
}
_TRIES = 60
_END = instruction(TrainerOp.END).words


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TrainerProgram:
    """A program and what it begins with.

    Attributes:
        words:   Instruction words.
        server:  Server memory, uint8[SERVER_WORDS, 16].
        rates:   Values of RATE and DECAY.
        error:   Error with which it ends, or NONE.
        address: Address of the instruction at which it ends.
    """

    words: list[int]
    server: np.ndarray
    rates: dict[TrainerRegister, int]
    error: TrainerError
    address: int

    def started(self) -> Trainer:
        """A core of golden that has the program and has not run it."""
        one = Trainer(SMALL, self.server.copy())
        one.load(self.words)
        for register, value in self.rates.items():
            one.write_register(register, value)
        return one


def random_program(rng: np.random.Generator, parts: int = 12) -> TrainerProgram:
    """A random program.

    Args:
        rng:   Source of random numbers.
        parts: Number of things that it does after it has filled the memories.
    """
    server = rng.integers(0, 256, (SERVER_WORDS, LANES), dtype=np.uint8)
    server[: SMALL.exponents // LANES] = rng.integers(110, 140, (SMALL.exponents // LANES, LANES))
    rates = {
        register: rate_bits(int(rng.integers(1 << 14, 1 << 15)), int(rng.integers(-8, 1)))
        for register in (TrainerRegister.RATE, TrainerRegister.DECAY)
    }
    made = TrainerProgram(words=[], server=server, rates=rates, error=TrainerError.NONE, address=0)
    state, words = _tried(made.started(), _moved(into=True), 0)
    assert state.error == TrainerError.NONE
    for _ in range(parts):
        part = PARTS[int(rng.integers(len(PARTS)))]
        for _ in range(_TRIES):
            after, added = _tried(state, part(TrainerPart(rng)), len(words))
            if after.error == TrainerError.NONE:
                state, words = after, words + added
                break
    wrong = [op for op in (*_WRONG, TrainerOp.END) if rng.random() < 0.3]
    for op in wrong:
        after, added = _tried(state, _nonsense(rng, op), len(words))
        if after.error not in (TrainerError.NONE, TrainerError.PEER):
            return replace(made, words=[*words, *added, *_END], error=after.error, address=len(words) + after.address)
    return replace(made, words=[*words, *_END], address=len(words))


def _tried(state: Trainer, part: TrainerPart, begin: int) -> tuple[Trainer, list[int]]:
    """A copy of a core after a part that stands at an address, and the words of the part there."""
    after = deepcopy(state)
    views = dict(after.core.views)
    after.load([*part.words, *_END])
    after.core.views = views
    after.run(*after.core.bases[:2])
    return after, part.at(begin)


def dump() -> list[int]:
    """A program that stores exponents, on-chip memory and accumulators to server memory, from word 0 on."""
    return [*_moved(into=False).words, *_END]


def _moved(*, into: bool) -> TrainerPart:
    """The part that fills exponents, on-chip memory and accumulators from server memory, or stores them there."""
    made = TrainerPart(np.random.default_rng(0))
    row = {"n0": 1, "s0": 0, "pitch2": 1}
    views = {
        Space.EXPONENTS: TrainerView(n2=SMALL.exponents // LANES, **row),
        Space.CHIP: TrainerView(n2=SMALL.words, **row),
        Space.ACCUMULATORS: TrainerView(planes=SUM_PLANES, n2=SMALL.accumulator_rows, blocks=2, **row),
    }
    for index, (space, view) in enumerate(views.items()):
        outside = replace(view, offset=DUMP[space].start, plane=view.n2 * view.blocks, block=view.n2)
        outside = replace(outside, space=Space.SERVER)
        made.words += replace(view, space=space).tensor(2 * index).words + outside.tensor(2 * index + 1).words
        to, source = (2 * index, 2 * index + 1) if into else (2 * index + 1, 2 * index)
        made.do(TrainerOp.COPY, to=to, source=source)
    return made


_WRONG = (
    TrainerOp.COPY,
    TrainerOp.PRODUCT,
    TrainerOp.POOL,
    TrainerOp.POOL_BACK,
    TrainerOp.ADD,
    TrainerOp.UPDATE,
    TrainerOp.LOOP,
    TrainerOp.SUM,
)


def _nonsense(rng: np.random.Generator, op: TrainerOp) -> TrainerPart:
    """An instruction of any numbers, with views of its own."""
    made = TrainerPart(rng)
    for _ in range(4):
        made.view(made.dense(made.shape(), int(rng.choice([1, 1, 1, 2, 2, 5, 6])), made.number(1, 3)))
    values = {}
    for name, field in FIELDS[op].items():
        kind = field.kind.removesuffix("?")
        high = {"view": 4, "base": SMALL.bases, "exponent": SMALL.exponents, "signed": 20}.get(
            kind, min(1 << field.width, 4)
        )
        values[name] = NONE if field.kind == "view?" and rng.random() < 0.5 else made.number(0, high)
    made.do(op, **values)
    return made
