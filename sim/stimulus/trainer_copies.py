"""Short copies among a few words at the ends of memories, so that most of them must wait for others."""

from dataclasses import replace

import numpy as np
from concord.sim.stimulus.trainer_parts import SMALL
from concord.spec.trainer.config import LANES
from concord.spec.trainer.instructions import Space, TrainerOp, instruction
from concord.spec.trainer.views import TrainerView

_POOL = 8  #: Words at each end of a memory.
_MOST = 4  #: Most words of a copy.
_EXPONENTS = SMALL.exponents // LANES  #: Words of exponents; the server has as many that hold exponents.
#: From where to where: of exponents only what a program has begun with is brought back.
_WAYS = (
    (Space.CHIP, Space.CHIP),
    (Space.CHIP, Space.SERVER),
    (Space.SERVER, Space.CHIP),
    (Space.EXPONENTS, Space.CHIP),
    (Space.EXPONENTS, Space.SERVER),
    (Space.SERVER, Space.EXPONENTS),
)
_WEIGHTS = (4, 4, 4, 1, 1, 1)


def crowded_copies(rng: np.random.Generator, count: int, server_words: int) -> list[int]:
    """The words of a program of copies, which golden does not refuse.

    Half of the sources on the chip and in server memory are seen through limits: some rows, or all of them, are zeros,
    and would lie outside of the memory.

    Args:
        rng:          Source of random numbers.
        count:        Number of copies.
        server_words: Words of server memory.
    """
    sizes = {Space.CHIP: SMALL.words, Space.SERVER: server_words}
    words, chances = [], np.array(_WEIGHTS) / sum(_WEIGHTS)
    for _ in range(count):
        source, to = _WAYS[int(rng.choice(len(_WAYS), p=chances))]
        rows, low = int(rng.integers(1, _MOST + 1)), bool(rng.integers(2))
        if Space.EXPONENTS in (source, to):
            seen = TrainerView(space=source, n2=_EXPONENTS, pitch2=1)
            rows, low = _EXPONENTS, False  # the first words of server memory stay what they are
        else:
            seen = _source(rng, source, rows, sizes[source], low)
        written = TrainerView(space=to, n2=rows, pitch2=1)
        if to in sizes:
            written = replace(written, offset=_offset(rng, rows, sizes[to], not low))
        words += [*written.tensor(0).words, *seen.tensor(1).words, *instruction(TrainerOp.COPY, to=0, source=1).words]
    return [*words, *instruction(TrainerOp.END).words]


def _offset(rng, rows: int, size: int, low: bool) -> int:
    """Where rows begin: at the low end of a memory, behind its exponents, or at its high end."""
    first = int(rng.integers(_EXPONENTS, _POOL - rows + 1))
    return first if low else size - _POOL + first


def _source(rng, space: Space, rows: int, size: int, low: bool) -> TrainerView:
    view = TrainerView(space=space, n2=rows, pitch2=1)
    if rng.integers(2):
        return replace(view, offset=_offset(rng, rows, size, low))
    limit = int(rng.integers(1, _MOST + 1))
    origin = int(rng.integers(-_MOST, _MOST + 1))
    nothing = origin + rows <= 0 or origin >= limit  # then it does not matter where it lies
    return replace(view, origin2=origin, limit2=limit, offset=size if nothing else 0 if low else size - limit)
