"""Groups of nodes to calls on whole tensors."""

import numpy as np
from concord.firmware.firmware import Firmware
from concord.spec.isa.operations import Operation
from concord.spec.numbers.softmax import fractions, wholes
from concord.twin.recovery.nodes.elements import RealConstants, Unrecognised, element_of, is_constant, node_of, read_by
from concord.twin.recovery.nodes.nodes import ProgramNodes, across_of, shape_of
from concord.twin.recovery.tensors.computed import ComputedCalls
from concord.twin.recovery.tensors.drafts import Constant, DraftValue
from concord.twin.recovery.tensors.heads import HeadViews
from concord.twin.recovery.tensors.pointwise import BlockCalls, PointwiseCalls
from concord.twin.recovery.tensors.pools import Pools, even, pool_order
from concord.twin.recovery.tensors.products import ProductCalls
from concord.twin.recovery.tensors.views import reading_order
from concord.twin.recovery.tensors.weights import FirmwareWeights, RealWeights

#: Functions of single elements.
_POINTWISE = {*(operation.function for operation in Operation if not operation.reduces), "integers", "floats",
              "numbers", "clip"}


class Statements:
    """Makes calls of groups of nodes, and remembers which element of which value each element of a node is.

    Args:
        firmware: The firmware.
        lowered:  The nodes.
        live:     bool[positions * width] for each node, the elements that are wanted.
    """

    def __init__(self, firmware: Firmware, lowered: ProgramNodes, live: dict[int, np.ndarray]):
        self.nodes, self.constants, self.live = lowered.nodes, lowered.constants, live
        self.views = HeadViews(lowered.constants)
        self._where: dict[int, np.ndarray] = {}
        self._unquantized = isinstance(lowered.constants, RealConstants)
        self._points = PointwiseCalls(self.views)
        self._blocks, self._pools = BlockCalls(self.views), Pools(self.views)
        weights = (RealWeights if self._unquantized else FirmwareWeights)(firmware, self.views)
        self._products = ProductCalls(weights, self.views)
        self._computed = ComputedCalls(self.views, firmware.config)

    def bind(self, node: int, value: DraftValue):
        """Let a node be a value that has its elements in the same order."""
        self._where[node] = self.views.all(value).reshape(-1)

    def refer(self, node: int, where: np.ndarray):
        """Let the elements of a node be references to elements of values; -1 where nobody reads them."""
        self._where[node] = where

    def mapped(self, table: np.ndarray) -> np.ndarray:
        """References to elements of values, of references to elements of nodes; -1 for those that nobody needs."""
        found, named = table.copy(), node_of(table)
        for node in read_by(table):
            mask = named == node
            found[mask] = self._where[node][element_of(table[mask])] if node in self._where else -1
        return found

    def emit(self, group: list[int]):
        """Make the calls of a group."""
        nodes = [self.nodes[index] for index in group]
        first = nodes[0]
        live = np.any([(self.live[index] & ~is_constant(node.out)).reshape(node.positions, -1).any(0)
                       for index, node in zip(group, nodes, strict=True)], 0)
        if not live.any():
            return
        if first.op in _POINTWISE:
            at = self._pointwise(nodes, live)
        elif first.op == "matmul":
            at = self._computed.emit(nodes, [(self.mapped(node.reads[0]), self.mapped(node.reads[1][live]))
                                             for node in nodes])
        else:
            function = {"product": self._product, "max_pool": self._pools.emit, "blocks": self._blocks.emit,
                        "softmax": self._softmax, "largest": self._reduced, "total": self._reduced,
                        "running": self._running}[first.op]
            at = self._each_once(function, nodes, live, order=pool_order if first.op == "max_pool" else None)
        done = 0
        for index, node in zip(group, nodes, strict=True):
            where = np.full((node.positions, node.width), -1, np.int64)
            where[:, live] = at[done:done + node.positions]
            self._where[index], done = where.reshape(-1), done + node.positions

    def _tables(self, nodes, live=None) -> list[np.ndarray]:
        """References [positions, elements] of each operand, for the positions of all strips of a group.

        Args:
            live: bool[width], elements to which point-wise operands are cut; all of them if not given.
        """
        tables = []
        for number in range(len(nodes[0].reads)):
            table = np.concatenate(even([node.reads[number] for node in nodes]))
            tables.append(self.mapped(table if live is None else table[:, live]))
        return tables

    def _pointwise(self, nodes, live) -> np.ndarray:
        """A point-wise operation; returns references to the values of the elements [positions, live elements]."""
        node, tables = nodes[0], self._tables(nodes, live)
        known = is_constant(np.concatenate([node.out.reshape(node.positions, -1)[:, live] for node in nodes]))
        main = next(k for k, table in enumerate(tables) if not is_constant(table[~known]).all())
        whole = self._points.whole(node, tables, main, known)
        if whole is not None:
            return whole
        return self._each_once(self._points.laid, nodes, live, tables)

    def _each_once(self, function, nodes, live, tables=None, order=None) -> np.ndarray:
        """Compute each different position once, in the order of what it reads.

        Args:
            order: Function of the values, and of the table of different positions, that gives another order or None.
        """
        tables = self._tables(nodes) if tables is None else tables
        rows = np.concatenate([table.reshape(len(table), -1) for table in tables], 1)
        choices = _choices(rows)
        for strict, choice in [*((True, each) for each in choices), (False, choices[0])]:
            first, where = choice
            other = order and order(self.views.values, tables[0][first])
            chosen = reading_order(rows, first) if other is None else first[other]
            value = function(nodes, live, [table[chosen] for table in tables], strict)
            if value is not None:
                break
        number = np.empty(len(rows), np.int64)
        number[chosen] = np.arange(len(chosen))
        return self.views.all(value).reshape(len(chosen), -1)[number[where]]

    def _softmax(self, nodes, live, tables, strict) -> DraftValue:
        """The softmax of the elements of each position."""
        table = tables[0][:, :nodes[0].settings[0]]
        source = self.views.view(table.reshape(shape_of(nodes, *table.shape)), nodes[0].address)
        tables = () if self._unquantized else ((fractions(), "fractions"), (wholes(), "wholes"))
        stored = [Constant(values=np.asarray(values, np.int32), role=role) for values, role in tables]
        return self.views.call("softmax", [source, *stored], source.shape, nodes[0].address)

    def _reduced(self, nodes, live, tables, strict) -> DraftValue:
        """The largest element, or the sum, of the elements of each position."""
        source = self.views.view(tables[0].reshape(self.views.shape(nodes, tables)), nodes[0].address)
        return self.views.call(nodes[0].op, [source], (*source.shape[:-1], 1), nodes[0].address)

    @staticmethod
    def _running(nodes, live, tables, strict):
        raise Unrecognised("the program reads reductions of parts of a vector")

    def _product(self, nodes, live, tables, strict) -> DraftValue | None:
        """A dense layer or a convolution; None for another product of several positions, if `strict`."""
        return self._products.emit(nodes, live, tables[0], across_of(nodes, len(tables[0])), strict)


def _choices(rows: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Positions that may be computed, and for each position the one whose result it has: those that differ, or all.

    Positions that read nothing but constants, such as padding, are positions of an image, too.
    """
    every = np.arange(len(rows))
    outside = np.where(is_constant(rows).all(1), every, -1)
    _, first, where = np.unique(np.column_stack([rows, outside]), axis=0, return_index=True, return_inverse=True)
    different = np.sort(first), first[where.reshape(-1)]
    return [different] if len(first) == len(rows) else [different, (every, every)]
