"""Quantisers of blocks, on tensors or on the windows of an image."""

import numpy as np
from concord.twin.recovery.nodes.elements import Constants, element_of, is_constant, node_of
from concord.twin.recovery.nodes.nodes import Node, across_of, shape_of
from concord.twin.recovery.tensors.drafts import Value
from concord.twin.recovery.tensors.views import Views
from concord.twin.recovery.tensors.windows import find_window, window_settings


class Blocks:
    """Makes the calls of quantisers of blocks.

    Args:
        views:     Makes values of tables of elements.
        constants: The constants.
    """

    def __init__(self, views: Views, constants: Constants):
        self._views, self._constants = views, constants

    def emit(self, nodes: list[Node], live: np.ndarray, tables: list[np.ndarray], strict: bool) -> Value:
        """The codes of blocks.

        Args:
            nodes:  Strips of one layer.
            live:   bool[width], which codes are wanted.
            tables: References [places, width] to numbers, one table.
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

    def _source(self, nodes, table) -> Value:
        sources = np.unique(node_of(table[~is_constant(table)]))
        source = self._views.values[int(sources[0])]
        if len(sources) == 1 and len(source.shape) == 3:
            patches = self._patches(nodes, table, source)
            if patches is not None:
                return patches
        shape = shape_of(nodes, *table.shape)
        if len(source.shape) == 3 and len(table) == source.shape[0] * source.shape[1]:
            shape = (*source.shape[:2], table.shape[1])
        return self._views.view(table.reshape(shape), nodes[0].address)

    def _patches(self, nodes, table, source) -> Value | None:
        """The windows of an image, one after the other, as they are quantised together."""
        fixed = is_constant(table)
        if self._constants.values(table[fixed]).any() or fixed.all(0).any():
            return None
        if table.shape[1] == source.shape[2]:
            return None
        window = find_window(np.where(fixed, -1, element_of(table)), source.shape, across_of(nodes, len(table)))
        if window is None or (window.taps * source.shape[2] + window.channels != np.arange(table.shape[1])).any():
            return None
        return self._views.call("patches", [source], (*window.places, table.shape[1]), nodes[0].address,
                               window=window.size, **window_settings(window))
