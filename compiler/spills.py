"""Which tensors lie in Dram as numbers, where memories of the chip are too small for all of them.

A tensor goes there once, and comes back strip by strip as each of its readers needs it: as codes in VectorRf, or as
the operand of a sum or product. Its numbers are the same binary16 numbers wherever they lie, so no bit changes.
"""

from collections.abc import Callable

from concord.compiler.compilation import Compilation
from concord.compiler.kinds.weightless import PoolKind, SumKind
from concord.compiler.lib.build import ModelBuild
from concord.compiler.plan.demands import Demands
from concord.spec.isa.memories import VRFS, Mem, depth

Plan = tuple[ModelBuild, Compilation]


def spilled(planned: Callable[[frozenset[str]], Plan]) -> Plan:
    """A plan whose tensors lie in Dram as far as memories of the chip are too small, or as passes have less to do then.

    Args:
        planned: The plan where tensors of some names lie in Dram.
    """
    far: frozenset[str] = frozenset()
    build, plan = planned(far)
    while (name := missing(build, plan.demands)) is not None:
        far |= {name}
        build, plan = planned(far)
    best = build, plan
    while True:
        trials = [planned(best[0].far | {name}) for name in _held(plan) if _leaves(plan.demands, name)]
        found = min(filter(_fits, trials), key=lambda trial: trial[1].words, default=best)
        if found[1].words >= plan.words:
            return best
        best, plan = found, found[1]


def _fits(trial: Plan) -> bool:
    """Whether all maps and numbers have room."""
    build, plan = trial
    return not build.shortages and missing(build, plan.demands) is None


def _held(plan: Compilation) -> list[str]:
    """Names of the tensors of which streams hold strips, and compute rows twice."""
    return [one.value.name for stream in plan.streams if stream.twice(plan.demands.config)
            for one in stream.maps if one not in plan.demands.brought]


def missing(build: ModelBuild, demands: Demands) -> str | None:
    """The name of a tensor that helps if it lies in Dram: the largest one in a memory that is too small.

    Returns:
        None if all memories are large enough, or if nothing in one that is too small can lie elsewhere.
    """
    config, allocator = build.config, build.allocator
    for reason in build.shortages:  # of strips
        if reason.tensor is not None and _leaves(demands, reason.tensor):
            return reason.tensor
    sizes: dict[str, int] = {}
    if allocator.used(Mem.VECTOR_RF) > config.vector_rf:
        for one in demands.maps:
            if one not in demands.brought and _leaves(demands, one.value.name):
                sizes[one.value.name] = max(sizes.get(one.value.name, 0), one.buffer.size)
    for numbers in demands.numbers:
        mem, name = numbers.buffer.mem, numbers.value.name
        if mem in VRFS and allocator.used(mem) > depth(config, mem) and _leaves(demands, name) and _summed(
                demands, name):
            sizes[name] = max(sizes.get(name, 0), numbers.buffer.size * config.mfu_lanes // config.native_dim)
    return max(sizes, key=sizes.get, default=None)


def _leaves(demands: Demands, name: str) -> bool:
    """Whether a tensor can be written to Dram: it is an image that no loop over time steps makes."""
    node = demands.network.node(name)
    if node is None:
        return False  # what chains of one layer leave for each other, such as the weights of an attention
    made_of_codes = isinstance(node.kind, PoolKind) and not demands.sinks[name].numbers
    return name not in demands.far and not node.value.in_words and demands.network.loop(node) is None \
        and not made_of_codes and node.value.pixels > 1


def _summed(demands: Demands, name: str) -> bool:
    """Whether nothing but sums and products of tensors reads the numbers of a tensor."""
    readings = [(node, demands.readings[node.name]) for node, _ in demands.network.consumers(demands.network.node(
        name).value) if node.name in demands.readings]
    return all(isinstance(node.kind, SumKind) and reading.anchor.name != name if reading.map is None else True
               for node, reading in readings)
