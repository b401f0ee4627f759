"""Gives every buffer its address, and chooses memories for numbers that may lie in any one.

All buffers get addresses at once, when every lifetime is known. Tied buffers keep a distance from each other, and may
overlap: who ties them knows that they never use the same word at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from concord.compiler.emit.passes import LayerPass
from concord.compiler.emit.storage import ANY, Buffer
from concord.compiler.lib.build import Allocator
from concord.compiler.lib.limits import Reason
from concord.compiler.lib.tiling import LARGEST
from concord.compiler.plan.demands import Demands
from concord.net.layers.joins import Concat
from concord.spec.isa.memories import VRFS, Mem, depth
from concord.spec.machine.config import Config

#: Number of strips of a pass with several chains: few, since each needs instructions of its own.
STRIPS = 4


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Tie:
    """Two buffers at a fixed distance.

    Attributes:
        low:      The buffer with the lower address.
        high:     The other one.
        distance: Words or entries from the one to the other.
    """

    low: Buffer
    high: Buffer
    distance: int


def choose_memories(config: Config, demands: Demands):
    """Choose memories for numbers that may lie in any one, the largest first."""
    network, allocated = demands.network, {mem: [] for mem in ANY}
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
    near = [one for one in demands.numbers if one.buffer.mem is not Mem.DRAM]
    for numbers in sorted(near, key=lambda one: (one.buffer.mem is None, -one.buffer.size)):
        name, buffer = numbers.value.name, numbers.buffer
        taken = {view.buffer.mem for view in demands.sinks[name].numbers}
        last = max((order[node.name] for node, _ in network.consumers(numbers.value)), default=order[name])
        trials = {}
        for mem in [buffer.mem] if buffer.mem else [mem for mem in ANY if mem not in taken]:
            trial = Buffer(mem=mem, name=buffer.name, size=buffer.size, first=first[name], last=last)
            allocate([trial], 0, others := list(allocated[mem]))
            trials[mem] = max(0, trial.end - depth(config, mem) * 7 // 8), others
        buffer.mem = min(trials, key=lambda mem: trials[mem][0])
        allocated[buffer.mem] = trials[buffer.mem][1]


def allocate_numbers(config: Config, allocator: Allocator, demands: Demands, passes: Sequence[LayerPass]
                     ) -> list[Reason]:
    """Give addresses to all numbers in vector memories and in Dram, and to each pass the rows of its strips.

    Returns:
        A reason for each strip for which there is no room.
    """
    memories = (*VRFS, *[Mem.DRAM] * bool(demands.far))
    found, allocated = [], {mem: [] for mem in memories}
    starts = {mem: allocator.used(mem) for mem in memories}
    for mem in memories:
        moving = [one.buffer for one in demands.numbers if one.buffer.mem == mem and not one.buffer.kept]
        allocate(moving, starts[mem], allocated[mem])
    for made in passes:
        found += _allocate_strips(config, made, starts, allocated)
    for mem in memories:
        end = _end(allocated[mem])
        if end > allocator.used(mem):
            largest = max(allocated[mem], key=lambda buffer: buffer.size)
            allocator.take(mem, end - allocator.used(mem), f"maps, among them {largest.name}")
    return found


def _allocate_strips(config: Config, made: LayerPass, starts: dict[Mem, int],
                     allocated: dict[Mem, list[Buffer]]) -> list[Reason]:
    """Choose the rows of a pass's strips, and the addresses of what a strip leaves for later chains."""
    rows, columns = made.length, 1 if made.flat else made.value.shape[2]
    made.rows = min(made.most or rows, rows, max(1, LARGEST // columns))
    if len(made.chains) > 1 and rows >= 2 * STRIPS:
        made.rows = min(made.rows, -(-rows // STRIPS))
    for strip in made.strips:
        gaps = {mem: _largest_gap(made.time, starts[mem], depth(config, mem), allocated[mem])
                for mem in ANY if mem not in strip.avoid}
        fitting = {mem: min(made.rows, size // (columns * strip.words)) for mem, (_, size) in gaps.items()}
        mem = max(fitting, key=fitting.get)
        if not fitting[mem]:
            needed, left = columns * strip.words, gaps[mem][1]
            return [Reason(
                sentence=f"{strip.buffer.name} needs {needed} words for a row, and {mem.title} has {left} left",
                attribute=mem.size, needed=depth(config, mem) + needed - left, available=depth(config, mem),
                tensor=strip.value.name)]
        made.rows = fitting[mem]
        strip.buffer.mem, strip.buffer.address = mem, gaps[mem][0]
        strip.buffer.size = made.rows * columns * strip.words
        allocated[mem].append(strip.buffer)
    return []


def allocate(buffers: Iterable[Buffer], start: int, allocated: list[Buffer], ties: Sequence[Tie] = ()):
    """Give each buffer the lowest address from `start` up that no other one has at the same time; the largest first.

    Args:
        buffers:   Buffers of one memory, which are appended to `allocated`.
        start:     First address that they may have.
        allocated: Buffers of the memory that have their addresses.
        ties:      Buffers that keep a distance.
    """
    groups = _tied(list(buffers), ties)
    for group in sorted(groups, key=lambda group: (-max(buffer.size + at for buffer, at in group), group[0][0].first)):
        align = max(buffer.align for buffer, _ in group)
        base, moved = -(-start // align) * align, True
        while moved:
            moved = False
            for buffer, at in group:
                for other in allocated:
                    if other.meets(buffer) and other.address < base + at + buffer.size and base + at < other.end:
                        base, moved = -(-(other.end - at) // align) * align, True
        for buffer, at in group:
            buffer.address = base + at
            allocated.append(buffer)


def overlaps(buffers: Sequence[Buffer]) -> bool:
    """Whether two buffers of a memory have words in common at the same time."""
    return any(one.meets(other) and one.address < other.end and other.address < one.end
               for one, other in combinations(buffers, 2))


def _tied(buffers: list[Buffer], ties: Sequence[Tie]) -> list[list[tuple[Buffer, int]]]:
    """Groups of tied buffers, each with its distance from the lowest address of its group."""
    found = {id(buffer): [(buffer, 0)] for buffer in buffers}
    for tie in ties:
        low, high = found[id(tie.low)], found[id(tie.high)]
        at = next(at for buffer, at in low if buffer is tie.low) + tie.distance
        shift = at - next(at for buffer, at in high if buffer is tie.high)
        joined = low + [(buffer, at + shift) for buffer, at in high]
        least = min(at for _, at in joined)
        joined = [(buffer, at - least) for buffer, at in joined]
        for buffer, _ in joined:
            found[id(buffer)] = joined
    return list({id(group): group for group in found.values()}.values())


def _largest_gap(time: int, start: int, end: int, allocated: list[Buffer]) -> tuple[int, int]:
    """Address and size of the largest free range of [start, end) during a pass."""
    best, at = (start, 0), start
    for other in sorted((b for b in allocated if b.first <= time <= b.last), key=lambda b: b.address):
        best = max(best, (at, min(other.address, end) - at), key=lambda gap: gap[1])
        at = max(at, other.end)
    return max(best, (at, end - at), key=lambda gap: gap[1])


def _end(buffers: list[Buffer]) -> int:
    return max((buffer.end for buffer in buffers), default=0)
