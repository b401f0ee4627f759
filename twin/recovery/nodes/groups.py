"""Nodes by layer, and which of their elements anything depends on.

Lanes of padding are computed too, and nobody reads them.

Strips of one layer have the same signature: they compute the same layer at other positions. The signature of a node is
its operation, its stored parameters, and the signatures of what it reads. Nodes with the same signature never depend on
each other, because a signature counts the operations above it.
"""

from collections import defaultdict

import numpy as np
from concord.twin.recovery.nodes.elements import Constants, element_of, is_constant, node_of, read_by
from concord.twin.recovery.nodes.nodes import PRODUCTS, REDUCTIONS, Body, ProgramNode, ProgramNodes


class Signatures:
    """Signatures of nodes, region by region.

    Args:
        nodes:     All nodes.
        constants: The constants.
    """

    def __init__(self, nodes: list[ProgramNode | None], constants: Constants):
        self._nodes, self._constants = nodes, constants
        self._numbers: dict[tuple, int] = {}
        self._depths: dict[int, int] = {}
        self._of: dict[int, int] = {}
        self._gates = False

    def groups(self, region: list[int], *, gates: bool = False) -> list[list[int]]:
        """Nodes of a region by signature; every group comes after those that it reads.

        Args:
            gates: Whether nodes that read other elements of the same vector are gates, and no strips.
        """
        found, self._gates = defaultdict(list), gates
        for index in region:
            found[self._signature(index)].append(index)
        return sorted(found.values(), key=lambda group: (self._depths[self._of[group[0]]], group[0]))

    def _signature(self, index: int) -> int:
        if index in self._of:
            return self._of[index]
        node = self._nodes[index]
        if not node.reads:
            return self._number(index, ("leaf", index), 0)
        above = [self._above(table) for table in node.reads]
        # What is added to scores may be other numbers for each head.
        heads = any(self._nodes[one].op == "matmul" for table in node.reads for one in read_by(table))
        parameters = [self._parameters(table, heads) for table in node.reads] if node.op not in PRODUCTS else ()
        weights = None if node.weights is None else node.weights.tobytes()
        start = None if node.start is None else node.start.tobytes()
        elements = map(self._elements, node.reads) if self._gates else ()
        key = (node.op, node.settings, node.width, start, weights, *parameters, *map(tuple, above), *elements)
        return self._number(index, key, 1 + max((self._depths[each] for each in sum(above, [])), default=0))

    def _number(self, index, key, depth) -> int:
        number = self._numbers.setdefault(key, len(self._numbers))
        self._of[index], self._depths[number] = number, depth
        return number

    def _above(self, table) -> list[int]:
        """Signatures of the nodes that an operand reads."""
        return sorted({self._signature(one) for one in read_by(table)})

    def _elements(self, table) -> bytes:
        """Elements of vectors that the first position reads; 0 for constants and elements of images."""
        first = table[:1].reshape(-1)
        vector = np.array([not constant and self._nodes[node].positions == 1 for constant, node in zip(
            is_constant(first), node_of(first), strict=True)])
        return np.where(vector, element_of(first), 0).tobytes()

    def _parameters(self, table, differ: bool) -> tuple:
        """The constants of an operand: one for each element, or a mark where positions may differ in them."""
        if table.ndim > 2:
            return ()
        fixed = is_constant(table).all(0)
        if not fixed.any() or (node_of(table[:, fixed]) != 0).any():
            return (fixed.tobytes(),)
        bits = self._constants.bits(table[:, fixed])
        return fixed.tobytes(), bits[0].tobytes() if (bits == bits[0]).all() and not differ else "map"


def liveness(lowered: ProgramNodes, groups: list[list[list[int]]]) -> dict[int, np.ndarray]:
    """bool[positions * width] for each node: whether outputs depend on its elements, or the layer computes them too.

    A layer computes all of its positions, so that an image stays whole where a stride leaves out some of its pixels.

    Args:
        lowered: The nodes.
        groups:  For each region and loop in `main`, its nodes by layer, in order.
    """
    work = _Liveness(lowered)
    work.mark(lowered.outputs)
    for each, layers in zip(reversed(lowered.main), reversed(groups), strict=True):
        if isinstance(each, Body):
            work.loop(each, layers)
        else:
            work.layers(layers)
    return work.live


class _Liveness:
    def __init__(self, lowered: ProgramNodes):
        self.nodes = lowered.nodes
        self.live = {index: np.zeros(node.positions * node.width, bool)
                     for index, node in enumerate(self.nodes) if node}

    def mark(self, table: np.ndarray):
        """Note that the elements of a table are read."""
        for index in read_by(table):
            if self.nodes[index].op == "input":
                continue
            self.live[index][element_of(table[node_of(table) == index])] = True

    def layers(self, groups: list[list[int]]):
        """Note what the live elements of layers are made of."""
        for group in reversed(groups):
            for index in group:
                self.node(index, np.any([self._live(other).any(0) for other in group], 0))

    def _live(self, index: int) -> np.ndarray:
        return self.live[index].reshape(self.nodes[index].positions, self.nodes[index].width)

    def node(self, index: int, wanted: np.ndarray):
        """Note what the elements bool[width] of a node are made of, at each position."""
        node, live = self.nodes[index], self._live(index)
        if not wanted.any():
            return
        live |= wanted
        for table in node.reads:
            self.mark(table[self._read(node, table, live)])

    @staticmethod
    def _read(node: ProgramNode, table: np.ndarray, live: np.ndarray) -> np.ndarray:
        """bool of the shape of a table, the elements that live elements [positions, width] depend on."""
        if node.op == "product":
            used = (node.weights[live.any(0)[:len(node.weights)]] >= 0).any(0)
            return live.any(1)[:, None] & used
        if node.op == "matmul":
            return np.broadcast_to(live.any(1 if table is node.reads[0] else 0)[:, None], table.shape)
        if node.op == "blocks":
            size = node.settings[0]
            whole = np.pad(live, ((0, 0), (0, -live.shape[1] % size))).reshape(len(live), -1, size).any(2)
            return np.repeat(whole, size, 1)[:, :table.shape[1]]
        if node.op in REDUCTIONS:
            return np.broadcast_to(live.any(1)[:, None], table.shape)
        return live if table.ndim == 2 else np.broadcast_to(live[..., None], table.shape)

    def loop(self, body: Body, groups: list[list[int]]):
        """Note what the results of a loop are made of, pass by pass until nothing is added."""
        for leaf, content in body.finals:
            self.mark(content[self.live[leaf]])
        for leaf, content in body.collected:
            self.mark(content[self.live[leaf].reshape(-1, len(content)).any(0)])
        before = -1
        while before != (before := self._count(body)):
            self.layers(groups)
            for carried in body.carried:
                self.mark(carried.next[self.live[carried.leaf]])
        for carried in body.carried:
            self.mark(carried.initial[self.live[carried.leaf]])
        for leaf, table in body.items:
            self.mark(table[:, self.live[leaf]])

    def _count(self, body: Body) -> int:
        return sum(int(self.live[index].sum()) for index in [*body.nodes, *(each.leaf for each in body.carried)])
