"""Groups of nodes to calls on whole tensors."""

import numpy as np
from concord.golden.host.firmware import Firmware
from concord.spec.softmax import fractions, wholes
from concord.twin.recovery.drafts import Constant, Value
from concord.twin.recovery.elements import NUMBERS, element_of, is_constant, node_of, read_by, refs
from concord.twin.recovery.liveness import liveness
from concord.twin.recovery.nodes import Lowered, across_of, shape_of
from concord.twin.recovery.pools import Pools, even, pool_order
from concord.twin.recovery.products import Products
from concord.twin.recovery.quantisers import QUANTISERS
from concord.twin.recovery.unquantised import RealConstants, RealProducts
from concord.twin.recovery.views import NUMBERS as PLAIN
from concord.twin.recovery.views import Views
from concord.twin.recovery.windows import find_window, window_settings

#: Roles of the constants of operations.
ROLES = {"add": "offset", "subtract": "offset", "multiply": "scale", "maximum": "bound"}
_POINTWISE = {"add", "subtract", "multiply", "maximum", "relu", "sigmoid", "tanh", "integers", "floats", "numbers",
              "clip"}


class Statements:
    """Makes calls of groups of nodes, and remembers which element of which value each element of a node is.

    Args:
        lowered: The nodes.
    """

    def __init__(self, firmware: Firmware, lowered: Lowered):
        self.nodes, self.constants, self.live = lowered.nodes, lowered.constants, liveness(lowered)
        self.views = Views(lowered.constants)
        self._format = firmware.config.activations
        self._where: dict[int, np.ndarray] = {}
        self._unquantised = isinstance(lowered.constants, RealConstants)
        self._pools = Pools(self.views, lowered.constants)
        self._products = (RealProducts if self._unquantised else Products)(firmware, self.views)

    def bind(self, node: int, value: Value):
        """Let a node be a value that has its elements in the same order."""
        self._where[node] = self.views.all(value).reshape(-1)

    def place(self, node: int, where: np.ndarray):
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
        live = np.any([(self.live[index] & ~is_constant(node.out)).reshape(node.places, -1).any(0)
                       for index, node in zip(group, nodes, strict=True)], 0)
        if not live.any():
            return
        if first.op in _POINTWISE:
            at = self._pointwise(nodes, live)
        else:
            function = {"product": self._product, "max_pool": self._pools.emit, "blocks": self._blocks,
                        "softmax": self._softmax}[first.op]
            at = self._placed(function, nodes, live, order=pool_order if first.op == "max_pool" else None)
        done = 0
        for index, node in zip(group, nodes, strict=True):
            where = np.full((node.places, node.width), -1, np.int64)
            where[:, live] = at[done:done + node.places]
            self._where[index], done = where.reshape(-1), done + node.places

    def _tables(self, nodes, live=None) -> list[np.ndarray]:
        """The operands of all places of a group; constant operands of dead elements count as zero."""
        tables = []
        for number in range(len(nodes[0].reads)):
            table = np.concatenate(even([node.reads[number] for node in nodes]))
            tables.append(self.mapped(table if live is None else table[:, live]))
        return tables

    def _pointwise(self, nodes, live) -> np.ndarray:
        """A point-wise operation; returns references to the values of the elements [places, live elements]."""
        node, tables = nodes[0], self._tables(nodes, live)
        known = is_constant(np.concatenate([node.out.reshape(node.places, -1)[:, live] for node in nodes]))
        main = next(k for k, table in enumerate(tables) if not is_constant(table[~known]).all())
        whole = self._whole(node, tables, main, known)
        if whole is not None:
            return whole
        return self._placed(self._laid, nodes, live, tables)

    def _whole(self, node, tables, main, known) -> np.ndarray | None:
        """The operation on all of the value that the main operand reads, if that is what the table amounts to.

        Args:
            known: bool[places, elements], results that are constants, so that nobody reads them here.
        """
        shape, tables = known.shape, [table[~known] for table in tables]
        table = tables[main]
        sources = np.unique(node_of(table))
        if len(sources) != 1 or is_constant(table).any():
            return None
        source, element = self.views.values[int(sources[0])], element_of(table)
        covered, first = np.unique(element, return_index=True)
        if len(covered) < source.size and not self._enough(source, covered):
            return None
        arguments = []
        for k, other in enumerate(tables):
            if k == main:
                arguments.append(source)
                continue
            spread = np.full(source.size, -1, np.int64)
            spread[covered] = self._plain(other)[first]
            if (spread[element] != self._plain(other)).any():
                return None
            spread[covered] = other[first]
            argument = self._operand(node, spread.reshape(source.shape), ROLES.get(node.op, ""))
            if argument is None:
                return None
            arguments.append(argument)
        at = np.full(shape, -1, np.int64)
        at[~known] = refs(self.views.index(self._call(node, arguments, source.shape)), element)
        return at

    @staticmethod
    def _enough(source, covered) -> bool:
        """Whether an operation on a whole image does little in vain."""
        if len(source.shape) != 3 or 2 * len(covered) < source.size:
            return False
        return len(np.unique(covered % source.shape[2])) == source.shape[2]

    def _plain(self, table):
        """References in which equal constants are equal."""
        fixed = is_constant(table) & (node_of(table) == NUMBERS)
        return np.where(fixed, self.constants.bits(np.where(fixed, table, 0)), table)

    def _operand(self, node, table, role) -> Value | Constant | None:
        """A second operand: a value, a stored vector, or a stored tensor. -1 stands for elements that do not matter."""
        known, fixed = table >= 0, is_constant(table)
        if not (fixed | ~known).all():
            if not known.all():
                return None
            return self.views.view(table, node.address)
        rows = table.reshape(-1, table.shape[-1])
        first = rows[(rows >= 0).argmax(0), np.arange(rows.shape[1])]
        if (first >= 0).all() and (self._plain(np.where(rows >= 0, rows, first)) == self._plain(first)).all():
            return self.views.constant(first, role)
        return self.views.constant(np.where(known, table, 0), role)

    def _call(self, node, arguments, shape) -> Value:
        """The call of a point-wise operation."""
        if node.op in QUANTISERS:
            return self._codes(node.settings, arguments[0], shape, node.address)
        if node.op == "clip":
            low, high = node.settings
            return self.views.call("clip", arguments, shape, node.address, codes=PLAIN, lowest=low, highest=high)
        return self.views.call(node.op, arguments, shape, node.address, codes=PLAIN)

    def _codes(self, made, source, shape, address) -> Value:
        """The call of a quantiser."""
        result = self.views.call(made.function, [source], shape, address, codes=PLAIN, **dict(made.settings))
        result.codes, result.zero, result.limit = made.codes, made.zero, made.limit
        return result

    def _placed(self, function, nodes, live, tables=None, order=None) -> np.ndarray:
        """Compute each different place once, in the order of what it reads.

        Args:
            order: Function of the values, and of the table of different places, that gives another order or None.
        """
        tables = self._tables(nodes) if tables is None else tables
        rows = np.concatenate([table.reshape(len(table), -1) for table in tables], 1)
        choices = _choices(rows)
        for strict, choice in [*((True, each) for each in choices), (False, choices[0])]:
            first, where = choice
            other = order and order(self.views.values, tables[0][first])
            chosen = self._order(rows, first) if other is None else first[other]
            value = function(nodes, live, [table[chosen] for table in tables], strict)
            if value is not None:
                break
        number = np.empty(len(rows), np.int64)
        number[chosen] = np.arange(len(chosen))
        return self.views.all(value).reshape(len(chosen), -1)[number[where]]

    @staticmethod
    def _order(rows, first):
        """The order of places: that of the elements in a column without constants, as they lie in an image."""
        steady = ~is_constant(rows[first]).any(0)
        moving = steady & (rows[first] != rows[first[:1]]).any(0)
        if not moving.any():
            return first
        column = rows[first, moving.argmax()]
        return first[np.argsort(column, kind="stable")]

    def _laid(self, nodes, live, tables, strict) -> Value:
        """A point-wise operation on elements that are no whole value."""
        node = nodes[0]
        shape = shape_of(nodes, *tables[0].shape)
        for table in tables:  # Elements that lie in an image keep its shape.
            sources = np.unique(node_of(table))
            value = self.views.values[int(sources[0])] if len(sources) == 1 else None
            if value is not None and len(value.shape) == 3 and len(table) == value.shape[0] * value.shape[1]:
                shape = (*value.shape[:2], table.shape[1])
        arguments = [self._operand(node, table.reshape(shape), ROLES.get(node.op, "")) for table in tables]
        return self._call(node, arguments, shape)

    def _blocks(self, nodes, live, tables, strict) -> Value:
        """A quantiser of blocks."""
        node, (table,) = nodes[0], tables
        last = int(np.flatnonzero(~is_constant(table).all(0))[-1]) + 1
        last = max(last, int(np.flatnonzero(live)[-1]) + 1)
        table = table[:, :last]
        source = self._blocks_source(nodes, table)
        value = self._codes(node.settings, source, source.shape, node.address)
        if last == live.sum():
            return value
        return self.views.view(self.views.all(value).reshape(-1, last)[:, live[:last]].reshape(
            *value.shape[:-1], -1), node.address)

    def _softmax(self, nodes, live, tables, strict) -> Value:
        """The softmax of the elements of each place."""
        table = tables[0][:, :nodes[0].settings[0]]
        source = self.views.view(table.reshape(shape_of(nodes, *table.shape)), nodes[0].address)
        tables = () if self._unquantised else ((fractions(), "fractions"), (wholes(), "wholes"))
        stored = [Constant(values=np.asarray(values, np.int32), role=role) for values, role in tables]
        return self.views.call("softmax", [source, *stored], source.shape, nodes[0].address)

    def _blocks_source(self, nodes, table) -> Value:
        sources = np.unique(node_of(table[~is_constant(table)]))
        source = self.views.values[int(sources[0])]
        if len(sources) == 1 and len(source.shape) == 3:
            patches = self._patches(nodes, table, source)
            if patches is not None:
                return patches
        shape = shape_of(nodes, *table.shape)
        if len(source.shape) == 3 and len(table) == source.shape[0] * source.shape[1]:
            shape = (*source.shape[:2], table.shape[1])
        return self.views.view(table.reshape(shape), nodes[0].address)

    def _patches(self, nodes, table, source) -> Value | None:
        """The windows of an image, one after the other, as they are quantised together."""
        fixed = is_constant(table)
        if self.constants.values(table[fixed]).any() or fixed.all(0).any():
            return None
        if table.shape[1] == source.shape[2]:
            return None
        window = find_window(np.where(fixed, -1, element_of(table)), source.shape, across_of(nodes, len(table)))
        if window is None or (window.taps * source.shape[2] + window.channels != np.arange(table.shape[1])).any():
            return None
        return self.views.call("patches", [source], (*window.places, table.shape[1]), nodes[0].address,
                               window=window.size, **window_settings(window))

    def _product(self, nodes, live, tables, strict) -> Value | None:
        """A dense layer or a convolution; None for another product of several places, if `strict`."""
        return self._products.emit(nodes, live, tables[0], across_of(nodes, len(tables[0])), strict)


def _choices(rows: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Places that may be computed, and for each place the one whose result it has: those that differ, or all."""
    _, first, where = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    every = np.arange(len(rows))
    different = np.sort(first), first[where.reshape(-1)]
    return [different] if len(first) == len(rows) else [different, (every, every)]
