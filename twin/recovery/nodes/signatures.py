"""Strips of one layer: nodes with the same signature compute the same layer at different places.

The signature of a node is its operation, its stored parameters, and the signatures of what it reads. Nodes with the
same signature never depend on each other, because a signature counts the operations above it.
"""

from collections import defaultdict

import numpy as np
from concord.twin.recovery.nodes.elements import Constants, element_of, is_constant, node_of, read_by
from concord.twin.recovery.nodes.nodes import Node


class Signatures:
    """Signatures of nodes, region by region.

    Args:
        nodes:     All nodes.
        constants: The constants.
    """

    def __init__(self, nodes: list[Node | None], constants: Constants):
        self._nodes, self._constants = nodes, constants
        self._numbers: dict[tuple, int] = {}
        self._depths: dict[int, int] = {}
        self._of: dict[int, int] = {}
        self._gates = False

    def groups(self, region: list[int], *, gates: bool = False) -> list[list[int]]:
        """Nodes of a region by signature; every group comes behind those that it reads.

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
        parameters = [self._parameters(table) for table in node.reads] if node.op != "product" else ()
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
        """Elements of vectors that the first place reads; 0 for constants and elements of images."""
        first = table[:1].reshape(-1)
        vector = np.array([not constant and self._nodes[node].places == 1 for constant, node in zip(
            is_constant(first), node_of(first), strict=True)])
        return np.where(vector, element_of(first), 0).tobytes()

    def _parameters(self, table) -> tuple:
        """The constants of an operand: one for each element, or a mark where they differ from place to place."""
        if table.ndim > 2:
            return ()
        fixed = is_constant(table).all(0)
        if not fixed.any() or (node_of(table[:, fixed]) != 0).any():
            return (fixed.tobytes(),)
        bits = self._constants.bits(table[:, fixed])
        return fixed.tobytes(), bits[0].tobytes() if (bits == bits[0]).all() else "map"
