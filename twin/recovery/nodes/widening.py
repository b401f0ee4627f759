"""Pieces of one layer: nodes whose results are always read side by side become one wide node.

A program computes a layer in pieces where its result is too tall for a product, or where native vectors of channels are
computed one after the other. Starting with what is read side by side, pieces are joined from the last operation of a
layer back to its products.
"""

import numpy as np
from concord.firmware.firmware import Firmware
from concord.twin.recovery.nodes.elements import element_of, is_constant, node_of, read_by, refs
from concord.twin.recovery.nodes.nodes import Body, ProgramNode, ProgramNodes
from concord.twin.recovery.nodes.pieces import Pieces


def widen(firmware: Firmware, lowered: ProgramNodes):
    """Join the pieces of layers, in place."""
    pieces = Pieces(firmware, lowered)
    work = _Widening(lowered, pieces)
    tables = list(pieces.tables())
    while tables:
        joined = work.join(pieces.runs(tables))
        tables = [table for index in joined for table in pieces.above(index)]
    pieces.sort()


class _Widening:
    """Joins nodes, in the regions and loops of `pieces`."""

    def __init__(self, lowered: ProgramNodes, pieces: Pieces):
        self.lowered, self.nodes, self.pieces = lowered, lowered.nodes, pieces
        self.regions, self.bodies = pieces.regions, pieces.bodies

    def join(self, runs: list[list[int]]) -> list[int]:
        """Replace each run by one node; returns the new nodes."""
        moved: dict[int, np.ndarray] = {}
        made = [self._join(run, moved) for run in runs]
        if made:
            self._rewrite(moved)
            self.pieces.changed()
        return made

    def _join(self, run: list[int], moved) -> int:
        nodes, first = [self.nodes[index] for index in run], self.nodes[run[0]]
        sizes, index = [self.pieces.size(node) for node in nodes], len(self.nodes)
        width, positions = sum(sizes), first.positions
        out = refs(index, np.arange(positions * width)).reshape(positions, width)
        at = 0
        for old, node, size in zip(run, nodes, sizes, strict=True):
            own = node.out.reshape(positions, -1)
            out[:, at:at + size] = np.where(is_constant(own[:, :size]), own[:, :size], out[:, at:at + size])
            own = own.copy()
            own[:, :size] = out[:, at:at + size]
            moved[old], at = own.reshape(-1), at + size
        whole = ProgramNode(op=first.op, positions=positions, width=width, settings=first.settings, out=out.reshape(-1),
                            address=first.address, across=first.across)
        self.nodes.append(whole)
        if first.op == "product":
            whole.reads = (np.concatenate([node.reads[0] for node in nodes], 1),)
            whole.weights = _diagonal([node.weights for node in nodes])
            whole.start = None if first.start is None else np.concatenate([node.start for node in nodes])
        elif first.op == "matmul":
            whole.reads = (first.reads[0], np.concatenate([node.reads[1] for node in nodes]))
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
