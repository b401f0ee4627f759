"""Random programs for a core that trains with one word damaged: a bit is flipped, or a field is at or beyond a limit.

What no instruction defines is not made: views that write a word twice. What would take golden very long is not made
either: large views, products of many blocks, loops of many turns, jumps into the middle of a `tensor`, and jumps across
another `repeat`, which may never end.
"""

from dataclasses import replace

import numpy as np
from concord.golden.trainer.core import TrainerCore
from concord.golden.trainer.memory import Seen
from concord.sim.stimulus.trainer_parts import SMALL
from concord.sim.stimulus.trainer_programs import SERVER_WORDS, TrainerProgram
from concord.spec.trainer.instructions import FIELDS, SIZES, WORD, Space, TrainerOp, decode
from concord.spec.trainer.views import TrainerView

MOST_WORDS = 2048  #: Words of a view.
MOST_BLOCKS = 64  #: Blocks of a product.
MOST_TURNS = 20  #: Turns of a loop.
_TRIES = 200
#: Numbers at which something ends: sizes of memories and tables, windows, planes.
_LIMITS = (
    0,
    15,
    16,
    SMALL.bases,
    SMALL.exponents,
    SMALL.accumulator_rows,
    SMALL.words,
    SMALL.instructions,
    SERVER_WORDS,
)


class UndefinedProgram(Exception):
    """A view writes a word twice, so that it is not defined which value stays."""


class StrictCore(TrainerCore):
    """A core of golden that refuses what is not defined."""

    def check(self, seen: Seen, name: str, extent: range | None = None, **options) -> range:
        """The extent of a view, with the errors of `TrainerCore.check`.

        Raises:
            UndefinedProgram: it is written, and has a word twice.
        """
        found = super().check(seen, name, extent, **options)
        rows = seen.rows()[0]
        words = rows if seen.view.space == Space.ACCUMULATORS else (seen.offsets + rows).ravel()
        if options.get("written") and len(np.unique(words)) != len(words):
            raise UndefinedProgram(name)
        return found


def damaged(rng: np.random.Generator, made: TrainerProgram) -> TrainerProgram:
    """The program with one damaged word, and how it then ends."""
    for _ in range(_TRIES):
        words = _flipped(rng, made.words) if rng.integers(2) else _at_limit(rng, made.words)
        one = replace(made, words=words)
        if words == made.words or not _is_short(words):
            continue
        golden = one.started()
        rates = golden.core.rate, golden.core.decay
        golden.core = StrictCore(config=SMALL, server=golden.core.server)
        golden.core.rate, golden.core.decay = rates
        try:
            error = golden.run()
        except UndefinedProgram:
            continue
        return replace(one, error=error, address=golden.address)
    return made


def _flipped(rng: np.random.Generator, words: list[int]) -> list[int]:
    """The words with another bit."""
    index = int(rng.integers(len(words)))
    return [*words[:index], words[index] ^ 1 << int(rng.integers(WORD)), *words[index + 1 :]]


def _at_limit(rng: np.random.Generator, words: list[int]) -> list[int]:
    """The words with another number in a field of an instruction: the ends of its range, and limits of the core."""
    starts = [address for address in _starts(words) if FIELDS[TrainerOp(words[address] & 63)]]
    address = int(rng.choice(starts))
    found = decode(words, address)
    assert found is not None
    name = str(rng.choice(list(FIELDS[found.op])))
    field = FIELDS[found.op][name]
    low = -(1 << field.width - 1) if field.kind == "signed" else 0
    high = low + (1 << field.width) - 1
    near = [limit + step for limit in (*_LIMITS, low, high, found[name]) for step in (-1, 0, 1)]
    value = int(rng.choice([number for number in near if low <= number <= high]))
    changed = replace(found, values={**found.values, name: value}).words
    return [*words[:address], *changed, *words[address + SIZES[found.op] :]]


def _starts(words: list[int]) -> list[int]:
    """Addresses of the instructions of a program, up to one that is none."""
    starts, address = [], 0
    while address < len(words):
        try:
            found = decode(words, address)
        except IndexError:
            break
        if found is None:
            break
        starts.append(address)
        address += SIZES[found.op]
    return starts


def _is_short(words: list[int]) -> bool:
    """Whether golden executes the words soon."""
    starts, repeat = _starts(words), -1
    for address in starts:
        found = decode(words, address)
        assert found is not None
        if found.op == TrainerOp.LOOP and found["count"] > MOST_TURNS:
            return False
        if found.op == TrainerOp.PRODUCT and found["n0"] * found["n1"] * found["n2"] > MOST_BLOCKS:
            return False
        if found.op == TrainerOp.TENSOR:
            view = TrainerView.of(found)
            if view.rows * view.blocks * view.planes > MOST_WORDS:
                return False
        if found.op == TrainerOp.REPEAT:
            if found["target"] < address and (found["target"] not in starts or found["target"] <= repeat):
                return False
            repeat = address
    return True
