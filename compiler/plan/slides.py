"""Passes that write their rows over those of their source that they have read, strip by strip.

The target lies below the source in VectorRf, so that the end of each strip of the target stays below the first row of
the source that this strip reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from concord.compiler.emit.buffers import Tie
from concord.compiler.emit.passes import Pass
from concord.compiler.emit.storage import CodeMap, CodesView
from concord.net.arithmetic.windows import Window

#: Number of strips of such a pass: more of them save more space, and need more instructions.
_STRIPS = 8


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Slide:
    """A pass whose target may lie over its source.

    Attributes:
        made:   The pass.
        target: Map that it writes.
        tie:    The distance of both maps.
        rows:   Rows of a strip.
        saved:  Number of entries that it saves.
    """

    made: Pass
    target: CodeMap
    tie: Tie
    rows: int
    saved: int


def slides_of(passes: Sequence[Pass]) -> list[Slide]:
    """All passes that may write over their source."""
    found = (_slide(made, passes) for made in passes)
    return [slide for slide in found if slide and slide.saved > 0]


def _slide(made: Pass, passes: Sequence[Pass]) -> Slide | None:
    """How a pass may write over its source, or None if it cannot."""
    sources, views = made.windowed(), [target for target in made.targets() if isinstance(target, CodesView)]
    if len(sources) != 1 or sources[0].map is None or len(views) != 1 or views[0].step is not None:
        return None
    source, target = sources[0].map, views[0].map
    writers = [other for other in passes if target in other.written()]
    if source.buffer.last != made.time or target.buffer.first != made.time or len(writers) > 1:
        return None
    count = made.value.shape[1]
    rows = -(-count // _STRIPS)
    distance = max(0, *(
        _reach(target, made.value.shape, min(first + rows, count)) - _begin(source, sources[0].window, first)
        for first in range(0, count, rows)))
    size = max(target.buffer.size, distance + source.buffer.size)
    return Slide(made=made, target=target, rows=rows, saved=target.buffer.size + source.buffer.size - size,
                 tie=Tie(low=target.buffer, high=source.buffer, distance=distance))


def _begin(source: CodeMap, window: Window, row: int) -> int:
    """The first entry of the source that the places from a row on read."""
    first = row * window.stride[0] - window.padding[0]
    return (source.around[0] + first) * source.pitch + (source.around[2] - window.padding[2]) * source.step


def _reach(target: CodeMap, shape: tuple[int, int, int], row: int) -> int:
    """The entry of the target behind all rows before one."""
    last = target.around[2] + shape[2] - 1
    return (target.around[0] + row - 1) * target.pitch + last * target.step + target.vectors
