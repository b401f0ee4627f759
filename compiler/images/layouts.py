"""Settles how maps lie in VectorRf, and gives every buffer its address."""

from collections.abc import Sequence
from itertools import product

import numpy as np
from concord.compiler.images.buffers import Buffer, largest_gap, place
from concord.compiler.images.demands import Demands
from concord.compiler.images.passes import Pass
from concord.compiler.images.slides import Slide, slides_of
from concord.compiler.images.storage import ANY, CodeMap
from concord.compiler.lib.allocation import Allocator
from concord.compiler.lib.tiling import LARGEST
from concord.model.arithmetic.windows import Window
from concord.spec.config import Config
from concord.spec.memories import VRFS, Mem, depth

#: Number of strips of a pass with several chains: few, since each needs instructions of its own.
STRIPS = 4


def settle(config: Config, maps: Sequence[CodeMap], passes: Sequence[Pass]) -> set[CodeMap]:
    """Arrange all maps in VectorRf: without conflicts of banks if VectorRf is large enough, else in the least space.

    Where that is still too much, a pass writes its rows over those of its source that it has read.

    Returns:
        The maps that are written over others, whose borders must be written after the pass.
    """
    buffers = [one.buffer for one in maps]
    for spacious in (True, False):
        for one in maps:
            one.arrange(*_distances(config, one, spacious))
        place(buffers, 0, placed := [])
        if _end(placed) <= config.vector_rf:
            return set()
    kept = _sliding(config, buffers, _end(placed), slides_of(passes))
    for slide in kept:
        slide.made.most = slide.rows
    return {slide.target for slide in kept}


def _sliding(config: Config, buffers: list[Buffer], end: int, slides: list[Slide]) -> list[Slide]:
    """The slides that save most, as many as are needed; all buffers are placed with them."""
    kept: list[Slide] = []
    for slide in sorted(slides, key=lambda slide: -slide.saved):
        size = _placed_with(buffers, [*kept, slide])
        if size <= end:
            kept, end = [*kept, slide], size
    for slide in list(kept):
        fewer = [other for other in kept if other is not slide]
        if _placed_with(buffers, fewer) <= max(end, config.vector_rf):
            kept = fewer
    _placed_with(buffers, kept)
    return kept


def _placed_with(buffers: list[Buffer], slides: list[Slide]) -> int:
    """Place all buffers, and return the number of entries that they need."""
    place(buffers, 0, placed := [], [slide.tie for slide in slides])
    return _end(placed)


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


def place_numbers(config: Config, allocator: Allocator, demands: Demands, passes: Sequence[Pass]) -> list[str]:
    """Give addresses to all numbers in vector memories, and to each pass the rows of its strips.

    Returns:
        A sentence for each strip for which there is no room.
    """
    found, placed = [], {mem: [] for mem in VRFS}
    starts = {mem: allocator.used(mem) for mem in VRFS}
    for mem in VRFS:
        place([one.buffer for one in demands.numbers if one.buffer.mem == mem], starts[mem], placed[mem])
    for made in passes:
        found += _place_strips(config, made, starts, placed)
    for mem in VRFS:
        end = _end(placed[mem])
        if end > allocator.used(mem):
            largest = max(placed[mem], key=lambda buffer: buffer.size)
            allocator.take(mem, end - allocator.used(mem), f"maps, among them {largest.name}")
    return found


def _place_strips(config: Config, made: Pass, starts: dict[Mem, int], placed: dict[Mem, list[Buffer]]) -> list[str]:
    """Choose the rows of a pass's strips, and place what a strip leaves for later chains."""
    _, rows, columns = made.value.shape
    made.rows = min(made.most or rows, rows, max(1, LARGEST // columns))
    if len(made.chains) > 1 and rows >= 2 * STRIPS:
        made.rows = min(made.rows, -(-rows // STRIPS))
    for strip in made.strips:
        gaps = {mem: largest_gap(made.time, starts[mem], depth(config, mem), placed[mem])
                for mem in ANY if mem not in strip.avoid}
        fitting = {mem: min(made.rows, size // (columns * strip.words)) for mem, (_, size) in gaps.items()}
        mem = max(fitting, key=fitting.get)
        if not fitting[mem]:
            needed, left = columns * strip.words, gaps[mem][1]
            return [f"{strip.buffer.name} needs {needed} words for a row, and {mem.title} has {left} left"]
        made.rows = fitting[mem]
        strip.buffer.mem, strip.buffer.address = mem, gaps[mem][0]
        strip.buffer.size = made.rows * columns * strip.words
        placed[mem].append(strip.buffer)
    return []


def _end(buffers: list[Buffer]) -> int:
    return max((buffer.end for buffer in buffers), default=0)
