"""Which elements of nodes anything depends on: lanes of padding are computed too, and nobody reads them."""

import numpy as np
from concord.twin.recovery.nodes.elements import element_of, node_of, read_by
from concord.twin.recovery.nodes.nodes import Body, Lowered, Node


def liveness(lowered: Lowered, groups: list[list[list[int]]]) -> dict[int, np.ndarray]:
    """bool[places * width] for each node: whether the outputs depend on its elements, or the layer computes them too.

    A layer computes all of its places, so that an image stays whole where a stride leaves out some of its pixels.

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
    def __init__(self, lowered: Lowered):
        self.nodes = lowered.nodes
        self.live = {index: np.zeros(node.places * node.width, bool) for index, node in enumerate(self.nodes) if node}

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
        return self.live[index].reshape(self.nodes[index].places, self.nodes[index].width)

    def node(self, index: int, wanted: np.ndarray):
        """Note what the elements bool[width] of a node are made of, at each place."""
        node, live = self.nodes[index], self._live(index)
        if not wanted.any():
            return
        live |= wanted
        for table in node.reads:
            self.mark(table[self._read(node, table, live)])

    @staticmethod
    def _read(node: Node, table: np.ndarray, live: np.ndarray) -> np.ndarray:
        """bool of the shape of a table, the elements that live elements [places, width] depend on."""
        if node.op == "product":
            used = (node.weights[live.any(0)[:len(node.weights)]] >= 0).any(0)
            return live.any(1)[:, None] & used
        if node.op == "blocks":
            size = node.settings[0]
            whole = np.pad(live, ((0, 0), (0, -live.shape[1] % size))).reshape(len(live), -1, size).any(2)
            return np.repeat(whole, size, 1)[:, :table.shape[1]]
        if node.op == "softmax":
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
