"""Pieces of one layer: nodes whose results are always read side by side become one wide node.

A program computes a layer in pieces where its result is too tall for a product, or where native vectors of channels are
computed one after the other. Starting with what is read side by side, pieces are joined from the last operation of a
layer back to its products.
"""

from collections.abc import Iterator

import numpy as np
from concord.golden.host.firmware import Firmware
from concord.twin.recovery.elements import element_of, is_constant, node_of, read_by, refs
from concord.twin.recovery.nodes import Body, Lowered, Node


def widen(firmware: Firmware, lowered: Lowered):
    """Join the pieces of layers, in place."""
    work = _Widening(firmware, lowered)
    tables = list(work.tables())
    while tables:
        joined = work.join(work.runs(tables))
        tables = [table for index in joined for table in work.above(index)]


class _Widening:
    def __init__(self, firmware: Firmware, lowered: Lowered):
        self.firmware, self.lowered, self.nodes = firmware, lowered, lowered.nodes
        self.regions: dict[int, list[int | Body]] = {}
        self.bodies: dict[int, Body] = {}
        for each in lowered.main:
            if isinstance(each, Body):
                self.regions |= dict.fromkeys(each.nodes, each.nodes)
                self.bodies |= dict.fromkeys(self._leaves(each), each)
            else:
                self.regions[each] = lowered.main

    @staticmethod
    def _leaves(body: Body) -> list[int]:
        return [*(each.leaf for each in body.carried), *(leaf for leaf, _ in body.finals),
                *(leaf for leaf, _ in body.items)]

    def tables(self) -> Iterator[np.ndarray]:
        """All tables of references [places, columns]."""
        layout = self.firmware.output_layout
        yield self.lowered.outputs.reshape(layout.channels if layout else self.lowered.outputs.size, -1).T
        for each in self.lowered.main:
            if isinstance(each, Body):
                yield from (table for _, table in each.items)
                for carried in each.carried:
                    yield from (carried.initial[None], carried.next[None])
                yield from (content[None] for _, content in [*each.finals, *each.collected])
        for index in self.regions:
            yield from self._reads(self.nodes[index])

    @staticmethod
    def _reads(node: Node) -> Iterator[np.ndarray]:
        yield from (table[..., 0] if table.ndim == 3 else table for table in node.reads)

    def above(self, index: int) -> Iterator[np.ndarray]:
        """The tables of what a node is made of."""
        node, body = self.nodes[index], self.bodies.get(index)
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
        return runs

    def _pairs(self, table) -> set[tuple[int, int]]:
        """Pairs of nodes where all of one, at a place, is read left of all of the other."""
        if table.shape[-1] < 2:
            return set()
        node, element = node_of(table), element_of(table)
        row, column = np.nonzero((node[:, 1:] != node[:, :-1]) & ~is_constant(table[:, 1:])
                                 & ~is_constant(table[:, :-1]))
        left, right = node[row, column], node[row, column + 1]
        found = set()
        for one, other in np.unique(np.stack([left, right], 1), axis=0).tolist():
            a, b = self.nodes[one], self.nodes[other]
            mask = (left == one) & (right == other)
            place, last = np.divmod(element[row[mask], column[mask]], a.width)
            beside, first = np.divmod(element[row[mask], column[mask] + 1], b.width)
            if (place == beside).all() and (last == self._size(a) - 1).all() and (first == 0).all():
                found.add((one, other))
        return found

    @staticmethod
    def _size(node: Node) -> int:
        """Number of elements of a place up to the last one that is no constant."""
        live = ~is_constant(node.out.reshape(node.places, -1)).all(0)
        return int(np.flatnonzero(live)[-1]) + 1 if live.any() else 0

    def _alike(self, one: int, other: int) -> bool:
        """Whether two nodes may be pieces of one layer."""
        a, b = self.nodes[one], self.nodes[other]
        kinds = [(node.op, node.settings, node.places, len(node.reads), node.start is None) for node in (a, b)]
        if kinds[0] != kinds[1] or self.regions.get(one) is not self.regions.get(other):
            return False
        if not a.reads:
            return self.bodies.get(one) is not None and self.bodies.get(one) is self.bodies.get(other)
        if a.op in ("blocks", "max_pool") or self._depends(other, one):
            return a.op == "blocks" and self._size(a) % a.settings[0] == 0 and not self._depends(other, one)
        layers = [self.firmware.layer_at(node.address) for node in (a, b)]
        return layers[0] == layers[1] if layers[0] else self._origins(one) == self._origins(other)

    def _depends(self, index: int, target: int) -> bool:
        """Whether a node depends on another one of its region."""
        seen, left = set(), [index]
        while left:
            for table in self.nodes[left.pop()].reads:
                for each in read_by(table):
                    if each == target:
                        return True
                    if each > target and each not in seen:
                        seen.add(each)
                        left.append(each)
        return False

    def _origins(self, index: int) -> frozenset[int]:
        """The nodes that the nearest products above a node read."""
        found, seen, left = set(), {index}, [index]
        while left:
            node = self.nodes[left.pop()]
            above = {each for table in node.reads for each in read_by(table)}
            if node.op == "product":
                found |= above
            else:
                left += above - seen
                seen |= above
        return frozenset(found)

    def join(self, runs: list[list[int]]) -> list[int]:
        """Replace each run by one node; returns the new nodes."""
        moved: dict[int, np.ndarray] = {}
        made = [self._join(run, moved) for run in runs]
        if made:
            self._rewrite(moved)
        return made

    def _join(self, run: list[int], moved) -> int:
        nodes, first = [self.nodes[index] for index in run], self.nodes[run[0]]
        sizes, index = [self._size(node) for node in nodes], len(self.nodes)
        width, places = sum(sizes), first.places
        out = refs(index, np.arange(places * width)).reshape(places, width)
        at = 0
        for old, node, size in zip(run, nodes, sizes, strict=True):
            own = node.out.reshape(places, -1)
            out[:, at:at + size] = np.where(is_constant(own[:, :size]), own[:, :size], out[:, at:at + size])
            own = own.copy()
            own[:, :size] = out[:, at:at + size]
            moved[old], at = own.reshape(-1), at + size
        whole = Node(op=first.op, places=places, width=width, settings=first.settings, out=out.reshape(-1),
                     address=first.address, across=first.across)
        self.nodes.append(whole)
        if first.op == "product":
            whole.reads = (np.concatenate([node.reads[0] for node in nodes], 1),)
            whole.weights = _diagonal([node.weights for node in nodes])
            whole.start = None if first.start is None else np.concatenate([node.start for node in nodes])
        elif first.reads:
            whole.reads = tuple(np.concatenate([node.reads[number][:, :size] for node, size in
                                                zip(nodes, sizes, strict=True)], 1)
                                for number in range(len(first.reads)))
        if first.reads:
            region = self.regions[run[0]]
            region.insert(region.index(run[-1]), index)
            for old in run:
                region.remove(old)
                del self.regions[old]
            self.regions[index] = region
        else:
            self._join_leaves(run, sizes, index)
        return index

    def _join_leaves(self, run, sizes, index):
        """Join states, results or items of a loop."""
        body = self.bodies[index] = self.bodies[run[0]]
        carried = {each.leaf: each for each in body.carried}
        if run[0] in carried:
            first = carried[run[0]]
            for name in ("initial", "next"):
                setattr(first, name, np.concatenate([getattr(carried[old], name)[:size] for old, size in
                                                     zip(run, sizes, strict=True)]))
            body.carried = [each for each in body.carried if each.leaf not in run[1:]]
            first.leaf = index
        for leaves in (body.finals, body.items):
            tables = dict(leaves)
            if run[0] in tables:
                table = np.concatenate([tables[old][..., :size] for old, size in zip(run, sizes, strict=True)], -1)
                leaves[:] = [(index, table) if leaf == run[0] else (leaf, other) for leaf, other in leaves
                             if leaf not in run[1:]]

    def _rewrite(self, moved: dict[int, np.ndarray]):
        """Let all references to old nodes name the new ones."""
        def new(table):
            hit = [each for each in read_by(table) if each in moved]
            if not hit:
                return table
            table = table.copy()
            for each in hit:
                mask = node_of(table) == each
                table[mask] = moved[each][element_of(table[mask])]
            return table

        lowered = self.lowered
        lowered.outputs = new(lowered.outputs)
        for index in self.regions:
            self.nodes[index].reads = tuple(map(new, self.nodes[index].reads))
        for body in {id(each): each for each in lowered.main if isinstance(each, Body)}.values():
            body.items = [(leaf, new(table)) for leaf, table in body.items]
            body.finals = [(leaf, new(content)) for leaf, content in body.finals]
            body.collected = [(leaf, new(content)) for leaf, content in body.collected]
            for carried in body.carried:
                carried.initial, carried.next = new(carried.initial), new(carried.next)


def _diagonal(blocks: list[np.ndarray]) -> np.ndarray:
    """Weights of several products as those of one with all rows and all columns; -1 stands for 0."""
    whole = np.full((sum(len(each) for each in blocks), sum(each.shape[1] for each in blocks)), -1, np.int64)
    row = column = 0
    for each in blocks:
        whole[row:row + len(each), column:column + each.shape[1]] = each
        row, column = row + len(each), column + each.shape[1]
    return whole
