"""Pieces of one layer: nodes whose results are always read side by side."""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import numpy as np
from concord.firmware.firmware import Firmware
from concord.twin.recovery.nodes.elements import element_of, is_constant, node_of, read_by
from concord.twin.recovery.nodes.nodes import WHOLE, Body, ProgramNode, ProgramNodes


class Pieces:
    """Finds pieces of layers.

    Args:
        firmware: The firmware, whose sections name layers.
        lowered:  The nodes.

    Attributes:
        regions: The region of each node, a list of its nodes in order.
        bodies:  The loop of each leaf.
    """

    def __init__(self, firmware: Firmware, lowered: ProgramNodes):
        self._firmware, self._lowered, self._nodes = firmware, lowered, lowered.nodes
        self.regions: dict[int, list[int]] = {}
        self.bodies: dict[int, Body] = {}
        self._above: dict[int, frozenset[int]] = {}
        for each in lowered.main:
            region = each.nodes if isinstance(each, Body) else each
            self.regions |= dict.fromkeys(region, region)
            if isinstance(each, Body):
                self.bodies |= dict.fromkeys(self._leaves(each), each)

    @staticmethod
    def _leaves(body: Body) -> list[int]:
        return [*(each.leaf for each in body.carried), *(leaf for leaf, _ in body.finals),
                *(leaf for leaf, _ in body.items)]

    def tables(self) -> Iterator[np.ndarray]:
        """All tables of references [positions, columns]."""
        layout = self._firmware.output_layout
        yield self._lowered.outputs.reshape(layout.channels if layout else self._lowered.outputs.size, -1).T
        for each in self._lowered.main:
            if isinstance(each, Body):
                yield from (table for _, table in each.items)
                for carried in each.carried:
                    yield from (carried.initial[None], carried.next[None])
                yield from (content[None] for _, content in [*each.finals, *each.collected])
        for index in self.regions:
            yield from self._reads(self._nodes[index])

    @staticmethod
    def _reads(node: ProgramNode) -> Iterator[np.ndarray]:
        yield from (table[..., 0] if table.ndim == 3 else table for table in node.reads)

    def above(self, index: int) -> Iterator[np.ndarray]:
        """The tables of what a node is made of."""
        node, body = self._nodes[index], self.bodies.get(index)
        yield from self._reads(node)
        if body is not None:
            for carried in body.carried:
                if carried.leaf == index:
                    yield from (carried.initial[None], carried.next[None])
            yield from (content[None] for leaf, content in body.finals if leaf == index)
            yield from (table for leaf, table in body.items if leaf == index)

    def runs(self, tables: list[np.ndarray]) -> list[list[int]]:
        """Nodes that are read side by side, from left to right."""
        after: dict[int, set[int]] = {}
        for table in tables:
            for left, right in self._pairs(table):
                after.setdefault(left, set()).add(right)
        before: dict[int, set[int]] = {}
        for left, rights in after.items():
            for right in rights:
                before.setdefault(right, set()).add(left)
        follows = {left: min(rights) for left, rights in after.items()
                   if len(rights) == 1 and len(before[min(rights)]) == 1 and self._alike(left, min(rights))}
        runs = []
        for first in sorted(set(follows) - set(follows.values())):
            run = [first]
            while run[-1] in follows:
                run.append(follows[run[-1]])
            runs.append(run)
        return self._acyclic(runs)

    def _pairs(self, table) -> set[tuple[int, int]]:
        """Pairs of nodes where all of one, at a position, is read left of all of the other."""
        if table.shape[-1] < 2:
            return set()
        node, element = node_of(table), element_of(table)
        row, column = np.nonzero((node[:, 1:] != node[:, :-1]) & ~is_constant(table[:, 1:])
                                 & ~is_constant(table[:, :-1]))
        left, right = node[row, column], node[row, column + 1]
        found = set()
        for one, other in np.unique(np.stack([left, right], 1), axis=0).tolist():
            a, b = self._nodes[one], self._nodes[other]
            mask = (left == one) & (right == other)
            position, last = np.divmod(element[row[mask], column[mask]], a.width)
            beside, first = np.divmod(element[row[mask], column[mask] + 1], b.width)
            if (position == beside).all() and (last == self.size(a) - 1).all() and (first == 0).all():
                found.add((one, other))
        return found

    @staticmethod
    def size(node: ProgramNode) -> int:
        """Number of elements of a position up to the last one that is no constant."""
        live = ~is_constant(node.out.reshape(node.positions, -1)).all(0)
        return int(np.flatnonzero(live)[-1]) + 1 if live.any() else 0

    def _alike(self, one: int, other: int) -> bool:
        """Whether two nodes may be pieces of one layer."""
        a, b = self._nodes[one], self._nodes[other]
        kinds = [(node.op, node.settings, node.positions, len(node.reads), node.start is None) for node in (a, b)]
        if kinds[0] != kinds[1] or self.regions.get(one) is not self.regions.get(other):
            return False
        if not a.reads:
            return self.bodies.get(one) is not None and self.bodies.get(one) is self.bodies.get(other)
        if self._depends(other, one) or self._depends(one, other):
            return False
        if a.op == "matmul":  # rows of one head; other heads read other operands
            return np.array_equal(a.reads[0], b.reads[0])
        if a.op in ("blocks", *WHOLE):
            return a.op == "blocks" and self.size(a) % a.settings[0] == 0
        layers = [self._firmware.layer_at(node.address) for node in (a, b)]
        return layers[0] == layers[1] if layers[0] else self._origins(one) == self._origins(other)

    def _depends(self, index: int, target: int) -> bool:
        """Whether a node depends on another one of its region."""
        region, seen, left = self.regions.get(index), set(), [index]
        while left:
            above = self._sources(left.pop())
            if target in above:
                return True
            more = {each for each in above - seen if self.regions.get(each) is region}
            seen |= more
            left += more
        return False

    def _sources(self, index: int) -> frozenset[int]:
        """The nodes that a node reads."""
        if index not in self._above:
            self._above[index] = frozenset(each for table in self._nodes[index].reads for each in read_by(table))
        return self._above[index]

    def changed(self):
        """Forget what nodes read, which has changed."""
        self._above.clear()

    def _acyclic(self, runs: list[list[int]]) -> list[list[int]]:
        """The runs, without those whose nodes would depend on themselves once all runs are joined."""
        if self._sorted(runs) is not None:
            return runs
        kept: list[list[int]] = []
        for run in runs:
            if self._sorted([*kept, run]) is not None:
                kept.append(run)
        return kept

    def _sorted(self, runs: list[list[int]]) -> list[int] | None:
        """The first nodes of runs, and all other nodes, each after those that it reads; None if they go in circles."""
        name = {index: run[0] for run in runs for index in run}
        graph: dict[int, set[int]] = {}
        for index in self.regions:
            graph.setdefault(name.get(index, index), set()).update(
                name.get(each, each) for each in self._sources(index) if each in self.regions)
        try:
            return list(TopologicalSorter(graph).static_order())
        except CycleError:
            return None

    def sort(self):
        """Put the nodes of regions after those that they read, where joined nodes do not stand so."""
        at = {index: number for region in self._regions() for number, index in enumerate(region)}
        if all(at[each] < at[index] for index, region in self.regions.items() for each in self._sources(index)
               if self.regions.get(each) is region):
            return
        order = {index: number for number, index in enumerate(self._sorted([]))}
        for region in self._regions():
            region.sort(key=order.get)

    def _regions(self) -> list[list[int]]:
        return list({id(region): region for region in self.regions.values()}.values())

    def _origins(self, index: int) -> frozenset[int]:
        """The nodes that the nearest products above a node read."""
        found, seen, left = set(), {index}, [index]
        while left:
            node = left.pop()
            above = self._sources(node)
            if self._nodes[node].op == "product":
                found |= above
            else:
                left += above - seen
                seen |= above
        return frozenset(found)
