"""Loops whose passes depend on each other: what each pass takes from outside, and from the pass before it.

The second pass of a loop is its template. An item that the template reads was made in the same pass, in the pass before
(a *state*), or outside of the loop. What lies outside and differs from pass to pass is an *item* of a sequence.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from concord.firmware.firmware import Firmware
from concord.spec.isa.instructions import Op, decode
from concord.twin.flow.flow import Flow, Refs
from concord.twin.recovery.nodes.elements import Unrecognised


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LoopSteps:
    """The steps of a loop with states.

    Attributes:
        passes: Index of the first step of each pass.
        size:   Number of steps of a pass.
        timed:  Whether the host sets the number of passes.
    """

    passes: tuple[int, ...]
    size: int
    timed: bool

    @property
    def last(self) -> int:
        """Index after the last step."""
        return self.passes[-1] + self.size


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Reads:
    """What an instruction of a loop's template reads.

    Attributes:
        inner: bool[...], whether an item was made in the same pass.
        state: bool[...], whether it was made in the pass before.
        outer: Per pass, the references; of use where neither `inner` nor `state`, and in the first pass for `state`,
            too, where they are the initial values.
    """

    inner: np.ndarray
    state: np.ndarray
    outer: tuple[Refs, ...]

    @property
    def moving(self) -> np.ndarray:
        """bool[...], which items lie outside and differ from pass to pass."""
        first = self.outer[0]
        same = [(first.value == other.value) & (first.item == other.item) for other in self.outer[1:]]
        return ~np.all(same, 0) & ~self.inner & ~self.state


def loops(flow: Flow) -> list[LoopSteps]:
    """The loop over time steps, and other loops whose passes depend on each other, in the order of the program."""
    found, done = [], 0
    for first, last, depth in _loops(flow.firmware):
        timed = first == flow.firmware.loop
        inside = [k for k, step in enumerate(flow.steps) if first < step.chain.address < last and k >= done]
        if inside and (timed or _recurs(flow, inside, depth)):
            found.append(_cut(flow, inside, depth, timed))
            done = found[-1].last
    return sorted(found, key=lambda loop: loop.passes)


def reads(flow: Flow, loop: LoopSteps, number: int, index: int) -> Reads:
    """What instruction `index` of step `number` of a pass reads.

    Raises:
        Unrecognised: passes differ in more than the items of sequences.
    """
    outer = tuple(flow.steps[first + number].reads[index] for first in loop.passes)
    made = np.array([value.step for value in flow.values])
    kinds = []
    for first, refs in zip(loop.passes, outer, strict=True):
        step = made[refs.value]
        inner, state = step >= first, (step >= first - loop.size) & (step < first) & (first > loop.passes[0])
        if (~inner & ~state & (step >= loop.passes[0])).any():
            raise Unrecognised("a pass of a loop reads what an earlier pass than the last one has made")
        kinds.append((inner, state, np.where(inner | state, step - first, 0), refs.item * (inner | state)))
    for kind in kinds[2:]:
        if not all(np.array_equal(one, other) for one, other in zip(kind, kinds[1], strict=True)):
            raise Unrecognised("the passes of a loop differ")
    inner, state = kinds[1][:2]
    if not np.array_equal(kinds[0][0], inner):
        raise Unrecognised("the first pass of a loop differs from the others")
    return Reads(inner=inner, state=state, outer=outer)


def _loops(firmware: Firmware) -> Iterator[tuple[int, int, int]]:
    """Address of each `loop` and its `end_loop`, and how many loops are around it; outer loops come first."""
    opened, found = [], []
    for address, word in enumerate(firmware.instruction_words.tolist()):
        op = decode(word).op
        if op == Op.LOOP:
            opened.append(address)
        elif op == Op.END_LOOP:
            first = opened.pop()
            found.append((first, address, len(opened)))
    return iter(sorted(found))


def _recurs(flow: Flow, inside: list[int], depth: int) -> bool:
    """Whether a chain of a loop depends on itself in an earlier pass."""
    members, edges = set(inside), defaultdict(set)
    made = np.array([value.step for value in flow.values])
    for k in inside:
        step = flow.steps[k]
        for refs in step.reads.values():
            for producer in np.unique(made[refs.value]).tolist():
                if producer in members:
                    edges[step.chain.address].add(flow.steps[producer].chain.address)
    return _cyclic(edges)


def _cyclic(edges: dict[int, set[int]]) -> bool:
    left = dict(edges)
    while True:
        ends = [node for node, targets in left.items() if not any(target in left for target in targets)]
        if not ends:
            return bool(left)
        for node in ends:
            del left[node]


def _cut(flow: Flow, inside: list[int], depth: int, timed: bool) -> LoopSteps:
    """The passes of a loop."""
    starts = [k for k in inside if k == inside[0] or flow.steps[k].passes[depth] != flow.steps[k - 1].passes[depth]]
    size = starts[1] - starts[0] if len(starts) > 1 else len(inside)
    loop = LoopSteps(passes=tuple(starts), size=size, timed=timed)
    if len(starts) < 2 or loop.last != inside[-1] + 1 or inside[-1] - inside[0] + 1 != len(inside):
        raise Unrecognised("a loop has too few passes, or passes of different lengths")
    for first in starts[1:]:
        for k in range(size):
            one, other = flow.steps[starts[0] + k], flow.steps[first + k]
            if one.chain.address != other.chain.address or one.span != other.span:
                raise Unrecognised("the passes of a loop run different chains")
    return loop
