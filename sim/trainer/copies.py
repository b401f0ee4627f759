"""Random copies of each engine, which golden executes."""

from dataclasses import replace

import numpy as np
from concord.golden.trainer.copying import copy
from concord.golden.trainer.core import RefusedInstruction, TrainerCore
from concord.sim.stimulus.trainer_parts import TrainerPart
from concord.sim.trainer.copy_stand import CONFIG
from concord.sim.trainer.jobs.copies import copy_job
from concord.spec.trainer.config import LANES, NONE, SUM_PLANES
from concord.spec.trainer.instructions import Space, TrainerInstruction, TrainerOp, instruction
from concord.spec.trainer.views import TrainerView

SERVER = 1024  #: Words of server memory.
_SIZES = {
    Space.CHIP: CONFIG.words,
    Space.SERVER: SERVER,
    Space.EXPONENTS: CONFIG.exponents // LANES,
    Space.ACCUMULATORS: CONFIG.accumulator_rows,
}
_NEAR = Space.CHIP, Space.EXPONENTS, Space.ACCUMULATORS
#: Pairs of memories between which an engine copies, from the second to the first.
PAIRS = {
    "load": [(to, Space.SERVER) for to in _NEAR],
    "store": [(Space.SERVER, source) for source in _NEAR],
    "move": [(to, source) for to in _NEAR for source in _NEAR],
}


class Copies:
    """Random copies of one engine, which golden has executed."""

    def __init__(self, name: str, core: TrainerCore, seed: int):
        self.name, self.core, self.rng = name, core, np.random.default_rng(seed)
        self.part = TrainerPart(self.rng)

    def next(self) -> tuple[dict, str]:
        """The next job, whose copy golden has executed, and words that describe it."""
        while (found := self.behind([])) is None:
            pass
        return found

    def behind(self, others: list[tuple]) -> tuple[dict, str] | None:
        """A job, as `next` gives it, or none: it may be under way beside others.

        Args:
            others: Space and words of the others, and whether they are written; those of this one are added.
        """
        i = self._patches() if self.name == "move" and self.rng.random() < 0.2 else self._copy()
        if i is None:
            return None
        names = ("to",) if i["zeros"] else ("to", "source")
        views = {name: self.core.views[i[name]] for name in names}
        mine = []
        for name, view in views.items():
            words = range(_SIZES[view.space]) if i["patches"] else view.whole(self.core.bases[view.base])
            mine.append((view.space, words, name == "to"))
        if any(_meet(one, other) for one in mine for other in others):
            return None
        job = copy_job(self.core, i)[1]
        try:
            copy(self.core, i)
        except RefusedInstruction:
            return None
        others += mine
        return job, f"{i} of {views}"

    def plain(self, to: Space, source: Space, rows: int) -> dict:
        """A job, which golden has executed: so many rows from word 0 on, of one word or all planes of accumulators."""
        planes = SUM_PLANES if Space.ACCUMULATORS in (to, source) else 1
        self.core.views |= {
            number: TrainerView(
                space=space, planes=planes, plane=1, n2=rows, pitch2=1 if space == Space.ACCUMULATORS else planes
            )
            for number, space in enumerate((to, source))
        }
        i = instruction(TrainerOp.COPY, to=0, source=1)
        copy(self.core, i)
        return copy_job(self.core, i)[1]

    def _put(self, number: int, view: TrainerView, space: Space) -> bool:
        """Make a view of a number, at a random address of its memory. Returns whether it fits."""
        view = replace(view, space=space)
        extent, base = view.whole(), 2 + number
        room = _SIZES[space] - len(extent)
        if room < 0:
            return False
        view = replace(view, base=base)
        self.core.bases[base] = self.part.number(0, room + 1) - extent.start
        self.core.views[number] = view
        return True

    def _copy(self) -> TrainerInstruction | None:
        part, rng = self.part, self.rng
        pairs = PAIRS[self.name]
        to, source = pairs[int(rng.integers(len(pairs)))]
        spaces, shape = {to, source}, part.shape(5)
        planes, blocks = int(rng.choice([1, 2, 4, 5, 6])), part.number(1, 4)
        if Space.EXPONENTS in spaces:
            planes, blocks, shape = 1, part.number(1, 3), part.shape(3)
        elif rng.random() < 0.3:
            shape = (1, part.number(1, 3), part.number(1, 90))
        if Space.ACCUMULATORS in spaces:
            planes, blocks = SUM_PLANES, part.number(1, 3)
        views = [self._view(space, shape, planes, blocks) for space in (to, source)]
        if rng.random() < 0.5:
            views[1] = part.padded(views[1], 3)
            if rng.random() < 0.7:
                views[1] = replace(views[1], step1=1, step2=1)
        zeros = self.name != "load" and rng.random() < 0.25
        if not self._put(0, views[0], to) or not self._put(1, views[1], source):
            return None
        add = to == Space.ACCUMULATORS and bool(rng.integers(2))
        return instruction(TrainerOp.COPY, to=0, source=NONE if zeros else 1, zeros=int(zeros), add=int(add))

    def _view(self, space: Space, shape: tuple[int, int, int], planes: int, blocks: int) -> TrainerView:
        """A view that sees no word twice; in accumulators, no row."""
        part, rows, inner = self.part, space == Space.ACCUMULATORS, int(np.prod(shape))
        first, second, third = shape
        view = part.dense(shape, 1 if rows else planes, 1 if rows else blocks, int(self.rng.choice([1, 2])))
        if self.rng.random() < 0.4:  # words that follow each other
            view = TrainerView(n0=first, s0=second * third, n1=second, pitch1=third, n2=third, pitch2=1)
            view = replace(view, block=inner, plane=inner * blocks)
        return replace(view, planes=planes, blocks=blocks)

    def _patches(self) -> TrainerInstruction | None:
        part = self.part
        size = part.number(1, 5)
        channels = part.number(1, 16 // size**2 + 1)
        width, shape = part.number(1, int(self.rng.choice([6, 24]))), part.shape()
        words = -(-width * channels // LANES)
        source = part.padded(TrainerView(n0=shape[0], s0=6 * words, n1=shape[1], pitch1=words, n2=shape[2]), 6)
        source = replace(source, limit2=width, pitch2=part.number(-9, 9))
        # The address of the raster, not that of what the view means without `patches`.
        put = self._put(1, replace(source, n2=words, step2=1, origin2=0, pitch2=1, limit2=0), Space.CHIP)
        self.core.views[1] = replace(source, base=3)
        if not put or not self._put(0, part.dense(shape, 1), Space.CHIP):
            return None
        return instruction(TrainerOp.COPY, to=0, source=1, patches=1, size=size, channels=channels)


def _meet(one: tuple, other: tuple) -> bool:
    """Whether two accesses to words depend on their order."""
    (space, words, written), (other_space, other_words, other_written) = one, other
    near = max(words.start, other_words.start) < min(words.stop, other_words.stop)
    return space == other_space and near and (written or other_written)
