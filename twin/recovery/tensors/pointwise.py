"""Operations on all of a tensor, or on elements as they lie: point-wise ones, and quantisers of blocks."""

import numpy as np
from concord.twin.recovery.nodes.elements import element_of, is_constant, node_of, read_by, refs
from concord.twin.recovery.nodes.nodes import ProgramNode, across_of
from concord.twin.recovery.nodes.quantizers import QUANTISING
from concord.twin.recovery.tensors.drafts import RESULTS, SCORES, Constant, DraftValue
from concord.twin.recovery.tensors.views import NUMBERS as PLAIN
from concord.twin.recovery.tensors.views import Maker
from concord.twin.recovery.tensors.windows import find_window, window_settings

#: Roles of the constants of operations.
ROLES = {"add": "offset", "subtract": "offset", "multiply": "scale", "maximum": "bound"}
SCORE_ROLES = {**ROLES, "add": "mask", "multiply": "share"}


class PointwiseCalls(Maker):
    """Makes the calls of point-wise operations."""

    def whole(self, node: ProgramNode, tables: list[np.ndarray], main: int, known: np.ndarray) -> np.ndarray | None:
        """The operation on all of the value that the main operand reads, if that is what the table amounts to.

        Args:
            node:   The first strip.
            tables: References [positions, elements] of each operand.
            main:   Number of the main operand.
            known:  bool[positions, elements], results that are constants, so that nobody reads them here.

        Returns:
            References [positions, elements] to the values of the elements, or None.
        """
        shape, tables = known.shape, [table[~known] for table in tables]
        table = tables[main]
        sources = np.unique(node_of(table))
        if len(sources) != 1 or is_constant(table).any():
            return None
        source, element = self._views.values[int(sources[0])], element_of(table)
        covered, first = np.unique(element, return_index=True)
        if len(covered) < source.size and not self._enough(source, covered):
            return None
        others = {number for k, other in enumerate(tables) if k != main for number in read_by(other)}
        if source.heads == RESULTS and not any(self._views.values[number].heads for number in others):
            table = self._views.merged(table)
            source, element = self._views.values[int(node_of(table[0]))], element_of(table)
            covered, first = np.unique(element, return_index=True)
        arguments, role = [], (SCORE_ROLES if source.heads == SCORES else ROLES).get(node.op, "")
        for k, other in enumerate(tables):
            if k == main:
                arguments.append(source)
                continue
            spread = np.full(source.size, -1, np.int64)
            spread[covered] = self._constants.plain(other)[first]
            if (spread[element] != self._constants.plain(other)).any():
                return None
            spread[covered] = other[first]
            argument = self._operand(node, spread.reshape(source.shape), role)
            if argument is None:
                return None
            arguments.append(argument)
        at = np.full(shape, -1, np.int64)
        at[~known] = refs(self._views.index(self._call(node, arguments, source.shape)), element)
        return at

    @staticmethod
    def _enough(source, covered) -> bool:
        """Whether an operation on a whole image does little in vain."""
        if len(source.shape) != 3 or 2 * len(covered) < source.size:
            return False
        return len(np.unique(covered % source.shape[2])) == source.shape[2]

    def _operand(self, node, table, role) -> DraftValue | Constant | None:
        """A second operand: a value, a stored vector, or a stored tensor. -1 stands for elements that do not matter."""
        known, fixed = table >= 0, is_constant(table)
        if not (fixed | ~known).all():
            if not known.all():
                return None
            same = table.shape[-1] > 1 and (table == table[..., :1]).all()
            return self._views.view(table[..., :1] if same else table, node.address)
        if role == "mask":
            heads = self._constants.plain(table)
            return Constant(values=self._constants.values(table if (heads != heads[:1]).any() else table[0]), role=role)
        rows = table.reshape(-1, table.shape[-1])
        first = rows[(rows >= 0).argmax(0), np.arange(rows.shape[1])]
        plain = self._constants.plain
        if (first >= 0).all() and (plain(np.where(rows >= 0, rows, first)) == plain(first)).all():
            return self._views.constant(first, role)
        return self._views.constant(np.where(known, table, 0), role)

    def _call(self, node, arguments, shape) -> DraftValue:
        """The call of a point-wise operation."""
        if node.op in QUANTISING:
            return self._views.codes(node.settings, arguments[0], shape, node.address)
        if node.op == "clip":
            low, high = node.settings
            return self._views.call("clip", arguments, shape, node.address, codes=PLAIN, lowest=low, highest=high)
        return self._views.call(node.op, arguments, shape, node.address, codes=PLAIN)

    def laid(self, nodes: list[ProgramNode], live: np.ndarray, tables: list[np.ndarray], strict: bool) -> DraftValue:
        """A point-wise operation on elements that are no whole value.

        Args:
            nodes:  Strips of one layer.
            live:   bool[width], which elements are wanted.
            tables: References [positions, wanted elements] of each operand.
            strict: Not used: there is always a value.
        """
        node = nodes[0]
        shape = self._views.shape(nodes, tables)
        arguments = [self._operand(node, table.reshape(shape), ROLES.get(node.op, "")) for table in tables]
        return self._call(node, arguments, shape)


class BlockCalls(Maker):
    """Makes the calls of quantisers of blocks."""

    def emit(self, nodes: list[ProgramNode], live: np.ndarray, tables: list[np.ndarray], strict: bool) -> DraftValue:
        """The codes of blocks.

        Args:
            nodes:  Strips of one layer.
            live:   bool[width], which codes are wanted.
            tables: References [positions, width] to numbers, one table.
            strict: Not used: there is always a value.
        """
        node, (table,) = nodes[0], tables
        last = int(np.flatnonzero(~is_constant(table).all(0))[-1]) + 1
        last = max(last, int(np.flatnonzero(live)[-1]) + 1)
        table = table[:, :last]
        source = self._source(nodes, table)
        value = self._views.codes(node.settings, source, source.shape, node.address)
        if last == live.sum():
            return value
        return self._views.view(self._views.all(value).reshape(-1, last)[:, live[:last]].reshape(
            *value.shape[:-1], -1), node.address)

    def _source(self, nodes, table) -> DraftValue:
        table = self._views.merged(table)
        sources = np.unique(node_of(table[~is_constant(table)]))
        source = self._views.values[int(sources[0])]
        if len(sources) == 1 and len(source.shape) == 3:
            patches = self._patches(nodes, table, source)
            if patches is not None:
                return patches
        return self._views.view(table.reshape(self._views.shape(nodes, [table])), nodes[0].address)

    def _patches(self, nodes, table, source) -> DraftValue | None:
        """The windows of an image, one after the other, as they are quantised together."""
        fixed = is_constant(table)
        if self._constants.values(table[fixed]).any() or fixed.all(0).any():
            return None
        if table.shape[1] == source.shape[2]:
            return None
        window = find_window(np.where(fixed, -1, element_of(table)), source.shape, across_of(nodes, len(table)))
        if window is None or (window.taps * source.shape[2] + window.channels != np.arange(table.shape[1])).any():
            return None
        return self._views.call("patches", [source], (*window.positions, table.shape[1]), nodes[0].address,
                               window=window.size, **window_settings(window))
