"""Settles how maps lie in VectorRf, and gives every buffer its address."""

from collections.abc import Sequence

from concord.compiler.emit.passes import Pass
from concord.compiler.emit.storage import ANY, Buffer, CodeMap, place
from concord.compiler.lib.build import Allocator
from concord.compiler.lib.limits import Reason
from concord.compiler.lib.tiling import LARGEST
from concord.compiler.plan.demands import Demands
from concord.compiler.plan.room import Room
from concord.compiler.plan.streams import Stream
from concord.net.layers.concat import Concat
from concord.spec.isa.memories import VRFS, Mem, depth
from concord.spec.machine.config import Config

#: Number of strips of a pass with several chains: few, since each needs instructions of its own.
STRIPS = 4


def choose_memories(config: Config, demands: Demands):
    """Choose memories for numbers that may lie in any one, the largest first."""
    network, placed = demands.network, {mem: [] for mem in ANY}
    if network.read is not Mem.VECTOR_RF:
        return
    order = {node.name: time for time, node in enumerate(network.nodes)}
    for node in network.nodes:
        if loop := network.loop(node):
            order[node.name] = order[loop.layers[0].name]
    first = {}
    for node in network.nodes:
        parts = node.sources if isinstance(node.layer, Concat) else ()
        first[node.name] = min([order[node.name], *(first[part.name] for part in parts)])
    for numbers in sorted(demands.numbers, key=lambda one: (one.buffer.mem is None, -one.buffer.size)):
        name, buffer = numbers.value.name, numbers.buffer
        taken = {view.buffer.mem for view in demands.sinks[name].numbers}
        last = max((order[node.name] for node, _ in network.consumers(numbers.value)), default=order[name])
        trials = {}
        for mem in [buffer.mem] if buffer.mem else [mem for mem in ANY if mem not in taken]:
            trial = Buffer(mem=mem, name=buffer.name, size=buffer.size, first=first[name], last=last)
            place([trial], 0, others := list(placed[mem]))
            trials[mem] = max(0, trial.end - depth(config, mem) * 7 // 8), others
        buffer.mem = min(trials, key=lambda mem: trials[mem][0])
        placed[buffer.mem] = trials[buffer.mem][1]


def settle(config: Config, maps: Sequence[CodeMap], passes: Sequence[Pass]) -> tuple[set[CodeMap], list[Stream]]:
    """Arrange all maps in VectorRf: without conflicts of banks where VectorRf is large enough, else in the least space.

    If the maps need more entries than VectorRf has even then, passes write their rows over those of their source that
    they have read. If that does not suffice either, several passes run strip by strip together.

    Returns:
        The maps that are written over others, whose borders must be written after the pass; and the streams.
    """
    room = Room(config, maps, passes)
    if room.end() > config.vector_rf:
        room.tighten()
    for slide in room.kept:
        slide.made.most = slide.rows
    for stream in room.streams:
        stream.passes[-1].most = stream.rows
    return {slide.target for slide in room.kept}, room.streams


def place_numbers(config: Config, allocator: Allocator, demands: Demands, passes: Sequence[Pass]) -> list[Reason]:
    """Give addresses to all numbers in vector memories, and to each pass the rows of its strips.

    Returns:
        A reason for each strip for which there is no room.
    """
    found, placed = [], {mem: [] for mem in VRFS}
    starts = {mem: allocator.used(mem) for mem in VRFS}
    for mem in VRFS:
        moving = [one.buffer for one in demands.numbers if one.buffer.mem == mem and not one.buffer.kept]
        place(moving, starts[mem], placed[mem])
    for made in passes:
        found += _place_strips(config, made, starts, placed)
    for mem in VRFS:
        end = _end(placed[mem])
        if end > allocator.used(mem):
            largest = max(placed[mem], key=lambda buffer: buffer.size)
            allocator.take(mem, end - allocator.used(mem), f"maps, among them {largest.name}")
    return found


def _place_strips(config: Config, made: Pass, starts: dict[Mem, int], placed: dict[Mem, list[Buffer]]) -> list[Reason]:
    """Choose the rows of a pass's strips, and place what a strip leaves for later chains."""
    _, rows, columns = made.value.shape
    made.rows = min(made.most or rows, rows, max(1, LARGEST // columns))
    if len(made.chains) > 1 and rows >= 2 * STRIPS:
        made.rows = min(made.rows, -(-rows // STRIPS))
    for strip in made.strips:
        gaps = {mem: _largest_gap(made.time, starts[mem], depth(config, mem), placed[mem])
                for mem in ANY if mem not in strip.avoid}
        fitting = {mem: min(made.rows, size // (columns * strip.words)) for mem, (_, size) in gaps.items()}
        mem = max(fitting, key=fitting.get)
        if not fitting[mem]:
            needed, left = columns * strip.words, gaps[mem][1]
            return [Reason(
                sentence=f"{strip.buffer.name} needs {needed} words for a row, and {mem.title} has {left} left",
                attribute=mem.size, needed=depth(config, mem) + needed - left, available=depth(config, mem))]
        made.rows = fitting[mem]
        strip.buffer.mem, strip.buffer.address = mem, gaps[mem][0]
        strip.buffer.size = made.rows * columns * strip.words
        placed[mem].append(strip.buffer)
    return []


def _largest_gap(time: int, start: int, end: int, placed: list[Buffer]) -> tuple[int, int]:
    """Address and size of the largest free range of [start, end) during a pass."""
    best, at = (start, 0), start
    for other in sorted((b for b in placed if b.first <= time <= b.last), key=lambda b: b.address):
        best = max(best, (at, min(other.address, end) - at), key=lambda gap: gap[1])
        at = max(at, other.end)
    return max(best, (at, end - at), key=lambda gap: gap[1])


def _end(buffers: list[Buffer]) -> int:
    return max((buffer.end for buffer in buffers), default=0)
