"""How many entries of VectorRf all maps need, and what is done where there are too few.

A pass can write its rows over those of its source that it has read, strip by strip. The target then lies below the
source in VectorRf, so that the end of each strip of the target stays below the first row of the source that this strip
reads.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from concord.compiler.emit.passes import LayerPass
from concord.compiler.emit.storage import CodeMap, CodesView
from concord.compiler.plan.addresses import Tie, allocate
from concord.compiler.plan.streams import PassStream, candidates, set_lifetimes, streams_of
from concord.net.arithmetic.windows import Window
from concord.spec.machine.config import Config

#: Numbers of strips of passes that run together, in the order in which they are tried.
STREAMED = (4, 8, 16, 32)
#: Fewest strips of passes that run together and compute no row twice.
_ONCE = 8
#: Number of strips of a pass that writes over its source: more save more space, and need more instructions.
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

    made: LayerPass
    target: CodeMap
    tie: Tie
    rows: int
    saved: int


def settle(
    config: Config, maps: Sequence[CodeMap], passes: Sequence[LayerPass], first: int = 0
) -> tuple[set[CodeMap], list[PassStream]]:
    """Arrange all maps in VectorRf: without conflicts of banks where VectorRf is large enough, else in the least space.

    If the maps need more entries than VectorRf has even then, passes write their rows over those of their source that
    they have read. If that does not suffice either, several passes run strip by strip together.

    Args:
        first: First entry that maps may have.

    Returns:
        The maps that are written over others, whose borders must be written after the pass; and the streams.
    """
    room = EntryRoom(config, maps, passes, first)
    if room.end() > config.vector_rf:
        room.tighten()
    for slide in room.kept:
        slide.made.most = slide.rows
    for stream in room.streams:
        stream.passes[-1].most = stream.rows
    return {slide.target for slide in room.kept}, room.streams


class EntryRoom:
    """The maps in VectorRf, and how many entries they need; at first none has conflicts of banks.

    Args:
        config: Configuration of the machine.
        maps:   All maps.
        passes: All passes.
        first:  First entry that maps may have.

    Attributes:
        kept:    The passes that write over their source.
        streams: The passes that run strip by strip together.
    """

    def __init__(self, config: Config, maps: Sequence[CodeMap], passes: Sequence[LayerPass], first: int):
        self._config, self._maps, self._passes, self._first = config, maps, passes, first
        self._buffers = [one.buffer for one in maps]
        self.kept: list[Slide] = []
        self.streams: list[PassStream] = []
        self._arrange(dict.fromkeys(maps, True))

    def end(self) -> int:
        """Give all buffers their addresses, and return the number of entries that they need."""
        allocate(self._buffers, self._first, allocated := [], [slide.tie for slide in self.kept])
        return max((buffer.end for buffer in allocated), default=0)

    def tighten(self):
        """Take the least space, and then avoid conflicts of banks where there is room for it."""
        loose = {one: _clashes(self._config, one) for one in self._maps}
        spacious = dict.fromkeys(self._maps, False)
        self._arrange(spacious)
        loose = {one: _clashes(self._config, one) - few for one, few in loose.items()}
        if self.end() > self._config.vector_rf:
            self._slide()
        if self.end() > self._config.vector_rf:
            spacious = dict.fromkeys(self._maps, self._stream())
        limit = max(self.end(), self._config.vector_rf)
        for one in sorted(self._maps, key=lambda one: -loose[one]):
            if loose[one]:
                self._arrange(spacious | {one: True})
                spacious[one] = self.end() <= limit
        self._arrange(spacious)
        self.end()

    def _arrange(self, spacious: dict[CodeMap, bool]):
        """Settle the distances in each map, and those of the passes that write over their source."""
        for one in self._maps:
            one.arrange(*_distances(self._config, one, spacious[one]))
        over = {slide.made for slide in self.kept}
        self.kept = [slide for slide in slides_of(self._passes) if slide.made in over] if over else []

    def _stream(self) -> bool:
        """Hold strips of some maps, so that as few rows as possible are computed twice, and few banks have conflicts.

        Returns:
            Whether maps are arranged without conflicts of banks.
        """
        slides, trials = self.kept, []
        for spacious, strips in product((False, True), STREAMED):
            self._hold([], 1)
            self._arrange(dict.fromkeys(self._maps, spacious))
            chosen: list[CodeMap] = []
            for one in candidates(self._passes):
                if self._suffices([*chosen, one], strips):
                    cost, *trial = self._loosened([*chosen, one], strips)
                    trials.append((cost + sum(_clashes(self._config, one) for one in self._maps), spacious, *trial))
                    break
                if self._legal:
                    chosen.append(one)
        _, spacious, chosen, rows = min(trials, key=lambda trial: trial[0], default=(0, False, [], 1))
        self._arrange(dict.fromkeys(self._maps, spacious))
        self._hold(chosen, rows)
        if not trials:
            self.kept = slides
        self.end()
        return spacious

    @property
    def _legal(self) -> bool:
        """Whether all streams can run."""
        return all(stream.legal for stream in self.streams)

    def _suffices(self, chosen: list[CodeMap], strips: int | dict[LayerPass, int]) -> bool:
        """Whether the maps fit if strips of some of them are held."""
        self._hold(chosen, strips)
        return self._legal and self.end() <= self._config.vector_rf

    def _loosened(self, chosen: list[CodeMap], strips: int) -> tuple[int, list[CodeMap], dict[LayerPass, int]]:
        """Hold strips of fewer maps, and longer ones, as far as all still fit.

        Returns:
            Words that are computed twice, the maps, and the rows of each stream by its last pass.
        """
        for one in reversed(chosen):
            fewer = [other for other in chosen if other is not one]
            if self._suffices(fewer, strips):
                chosen = fewer
        self._hold(chosen, strips)
        rows = {stream.passes[-1]: stream.rows for stream in self.streams}
        once = {stream.passes[-1] for stream in self.streams if not stream.twice(self._config)}
        for last in sorted(rows, key=lambda last: -last.value.pixels):
            # Strips without rows in common overlap with those before and after, so that there should be some.
            fewest = _ONCE if last in once else 1
            for count in _lengths(last.value.shape[1], fewest):
                if count > rows[last] and self._suffices(chosen, rows | {last: count}):
                    rows[last] = count
                    break
        self._hold(chosen, rows)
        return sum(stream.twice(self._config) for stream in self.streams), chosen, rows

    def _hold(self, chosen: list[CodeMap], strips: int | dict[LayerPass, int]):
        """Hold strips of some maps only; other passes may write over their source."""
        self.streams = streams_of(self._passes, chosen, strips)
        for one in self._maps:
            one.held = 0
        for stream in self.streams:
            stream.hold()
        for one in self._maps:
            one.arrange(one.step, one.pitch)
        set_lifetimes(self._passes, self.streams)
        self.kept = []
        if self.end() > self._config.vector_rf >= self._least():
            self._slide()

    def _least(self) -> int:
        """Entries that all maps need at least, whichever passes write over their source."""
        saved = {slide.made.time: slide.saved for slide in slides_of(self._passes)}
        return max(self._live(time) - saved.get(time, 0) for time in range(len(self._passes)))

    def _live(self, time: int) -> int:
        """Entries of all maps in use during a pass."""
        return sum(buffer.size for buffer in self._buffers if buffer.first <= time <= buffer.last)

    def _slide(self):
        """Choose the passes that write over their source: as few as suffice, or those with which maps need least."""
        streamed = {made for stream in self.streams for made in stream.passes}
        slides = sorted((slide for slide in slides_of(self._passes) if slide.made not in streamed and (
            not self.streams or self._live(slide.made.time) > self._config.vector_rf)), key=lambda slide: -slide.saved)
        trials = [self._grown(slides), self._pruned(slides)]
        self.kept = min(trials, key=self._end_with)
        self.kept = self._pruned(self.kept)

    def _grown(self, slides: list[Slide]) -> list[Slide]:
        """Slides that save entries, one after the other."""
        kept: list[Slide] = []
        for slide in slides:
            if self._end_with([*kept, slide]) <= self._end_with(kept):
                kept.append(slide)
        return kept

    def _pruned(self, slides: list[Slide]) -> list[Slide]:
        """The slides without those that are not needed: they move maps apart, which may cost more than they save."""
        for slide in reversed(slides):
            fewer = [other for other in slides if other is not slide]
            if self._end_with(fewer) <= max(self._end_with(slides), self._config.vector_rf):
                slides = fewer
        return slides

    def _end_with(self, slides: list[Slide]) -> int:
        """The number of entries that all maps need with these slides."""
        self.kept = slides
        return self.end()


def _lengths(rows: int, fewest: int) -> list[int]:
    """Rows of a strip, the most first, for each number of strips from the fewest one on."""
    return sorted({-(-rows // strips) for strips in range(fewest, rows + 1)}, reverse=True)


def _clashes(config: Config, one: CodeMap) -> int:
    """Cycles that conflicts of banks add to all row tiles of the readers of a map, for one pixel."""
    return sum(conflicts(config, window, 1 if apart else one.vectors, one.step, one.pitch)
               * (one.vectors if apart else 1) for window, apart in one.windows) * one.value.pixels


def _distances(config: Config, one: CodeMap, spacious: bool) -> tuple[int, int]:
    """The distances between pixels and rows with the fewest conflicts of banks, and among those the smallest ones."""
    engines = config.tile_engines if spacious else 1
    best = None
    for step, pad in product(range(one.vectors, one.vectors + engines), range(engines if one.uniform else 1)):
        one.step = step
        pitch = one.smallest_pitch + pad
        clash = sum(conflicts(config, window, 1 if apart else one.vectors, step, pitch)
                    for window, apart in one.windows)
        key = clash, pitch
        if best is None or key < best[0]:
            best = key, (step, pitch)
    return best[1]


def conflicts(config: Config, window: Window, vectors: int, step: int, pitch: int) -> int:
    """Cycles by which the banks of VectorRf lengthen a row tile of a product.

    Args:
        vectors: Native vectors of a pixel that a row tile reads.
        step:    Distance in entries between neighbouring pixels.
        pitch:   Distance in entries between neighbouring rows.
    """
    rows, columns, vector = np.ix_(*map(np.arange, (*window.size, vectors)))
    addresses = (rows * window.dilation[0] * pitch + columns * window.dilation[1] * step + vector).ravel()
    engines = config.tile_engines
    banks = np.pad(addresses % engines, (0, -len(addresses) % engines), constant_values=-1).reshape(-1, engines)
    fullest = (banks[:, :, None] == np.arange(engines)).sum(1).max(1)
    return int((fullest - 1).sum())


def slides_of(passes: Sequence[LayerPass]) -> list[Slide]:
    """All passes that may write over their source."""
    writers = Counter(one for made in passes for one in set(made.written()))
    found = (_slide(made, writers) for made in passes)
    return [slide for slide in found if slide and slide.saved > 0]


def _slide(made: LayerPass, writers: Counter[CodeMap]) -> Slide | None:
    """How a pass may write over its source, or None if it cannot; `writers` counts the passes that write each map."""
    sources, views = made.windowed(), [target for target in made.targets() if isinstance(target, CodesView)]
    if len(sources) != 1 or sources[0].map is None or len(views) != 1 or views[0].step is not None:
        return None
    source, target = sources[0].map, views[0].map
    if source.buffer.last != made.time or target.buffer.first != made.time or writers[target] > 1:
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
    """The first entry of the source that the pixels from a row on read."""
    first = row * window.stride[0] - window.padding[0]
    return (source.around[0] + first) * source.pitch + (source.around[2] - window.padding[2]) * source.step


def _reach(target: CodeMap, shape: tuple[int, int, int], row: int) -> int:
    """The entry of the target after all rows before one."""
    last = target.around[2] + shape[2] - 1
    return (target.around[0] + row - 1) * target.pitch + last * target.step + target.vectors
