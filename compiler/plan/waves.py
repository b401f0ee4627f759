"""Passes that take turns strip by strip, so that the multiplier and the multi-function units work at the same time.

Both work in program order. Where passes follow each other as a whole, the multiplier waits for the chains that make a
product's operands, and the multi-function units wait for products. In a wave, strips of other passes stand between a
strip and the one that it makes possible: with levels 0, 1 and 2,

    turn 0: strip 0 of level 0
    turn 1: strip 1 of level 0, strip 0 of level 1
    turn 2: strip 2 of level 0, strip 1 of level 1, strip 0 of level 2

Positions of a wave are independent of each other: each pass computes one of them from the same one of other tensors.
Everything that a wave reads or writes lies in memory as long as it lasts, so it needs more room than its passes alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from concord.compiler.emit.passes import LayerPass
from concord.compiler.emit.sources import FromNumbers, FromProduct, FromSlot
from concord.compiler.emit.storage import CodeMap, CodesView, NumbersView
from concord.compiler.emit.time_loops import TimeLoop
from concord.compiler.lib.program import NET, ProgramBuilder
from concord.net.arithmetic.windows import Window
from concord.spec.machine.config import Config

#: Number of strips of a wave.
STRIPS = 4
#: Fewest rows, or positions of a single row, of a wave.
FEWEST = 8
_PIXEL = Window(size=(1, 1))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Wave:
    """Consecutive passes that take turns.

    Attributes:
        passes: The passes.
        levels: For each pass, how many others stand one behind the other ahead of it.
    """

    passes: tuple[LayerPass, ...]
    levels: tuple[int, ...]

    @classmethod
    def of(cls, passes: Sequence[LayerPass]) -> "Wave":
        """A wave of passes, which are cut into strips."""
        levels: list[int] = []
        for number, made in enumerate(passes):
            buffers = made.buffers()
            levels.append(max((levels[k] + 1 for k, other in enumerate(passes[:number]) if any(
                target is not None and target.buffer in buffers for target in other.targets())), default=0))
            made.flat = made.value.shape[1] == 1
            made.most = -(-made.length // STRIPS)
        return cls(passes=tuple(passes), levels=tuple(levels))

    def emit(self, config: Config, program: ProgramBuilder):
        """Add all strips of the passes to a program."""
        length, most = self.passes[0].length, self.passes[0].most
        strips = -(-length // most)
        for turn in range(strips + max(self.levels)):
            for made, level in zip(self.passes, self.levels, strict=True):
                if 0 <= turn - level < strips:
                    first = (turn - level) * most
                    made.emit_rows(config, program, first, min(first + most, length))


def waves_of(passes: Sequence[LayerPass]) -> list[Wave]:
    """The longest runs of passes that can take turns."""
    found, run = [], []
    for made in [*passes, None]:
        fits = made is not None and _alone(made) and max(made.value.shape[1:]) >= FEWEST
        if run and not (fits and made.value.shape[1:] == run[0].value.shape[1:] and _turns([*run, made])):
            found += [Wave.of(run)] if len(run) > 1 else []
            run = []
        if fits:
            run.append(made)
    return found


def _turns(run: Sequence[LayerPass]) -> bool:
    """Whether no more than one of the passes writes to the host, and none but the first one reads from it."""
    sends = sum(None in made.targets() for made in run)
    takes = any(planned.chain.source == FromSlot(slot=NET) for made in run[1:] for planned in made.chains)
    return sends < 2 and not takes


def _alone(made: LayerPass) -> bool:
    """Whether each pixel of a pass depends on no other pixel."""
    if isinstance(made, TimeLoop) or made.whole:
        return False
    pixels = made.value.shape[1:]

    def fits(view: object) -> bool:
        match view:
            case NumbersView():
                return view.still or view.buffer.kept or view.numbers.value.shape[1:] == pixels
            case CodesView():
                return view.step is None and fits(view.map)
            case CodeMap():
                return view.value.shape[1:] == pixels and not any(view.around)
        return True

    for planned in made.chains:
        match planned.chain.source:
            case FromNumbers(view=view):
                if not fits(view):
                    return False
            case FromProduct(map=one, window=window):
                if window != _PIXEL or not fits(one):
                    return False
            case FromSlot():
                pass
            case _:
                return False
        if not all(fits(step.at) for step in planned.chain.steps):
            return False
    return True
