"""Products to dense layers and convolutions: weights in the order of what they multiply, without padding."""

import numpy as np
from concord.twin.recovery.nodes.elements import element_of, is_constant, node_of
from concord.twin.recovery.tensors.drafts import DraftValue
from concord.twin.recovery.tensors.views import NUMBERS, Views
from concord.twin.recovery.tensors.weights import FirmwareWeights, TooWide, UnpaddedProduct
from concord.twin.recovery.tensors.windows import RecoveredWindow, find_window, groups_of, window_settings


class ProductCalls:
    """Makes the calls of products.

    Args:
        weights: Weights of the firmware.
        views:   Makes values of tables of elements.
    """

    def __init__(self, weights: FirmwareWeights, views: Views):
        self._weights, self._views, self._mantissas = weights, views, weights.mantissas

    def emit(self, nodes, live, table: np.ndarray, across: list[int], strict: bool) -> DraftValue | None:
        """The value of a product; None if it has several positions and is no convolution, and `strict` is true.

        Args:
            nodes:  Strips of one product.
            live:   bool[width], which rows are wanted.
            table:  References [positions, columns] to codes.
            across: Candidates for the number of positions across.
        """
        node = nodes[0]
        weights = node.weights[np.flatnonzero(live)]
        used = (self._mantissas[weights] != 0).any(0)
        table, weights = self._distinct(self._views.merged(table[:, used]), weights[:, used])
        like = self._weights.like(table, "integers" if node.settings[0] else "blocks")
        start, places = self._weights.start(node, live, weights, like)
        fixed = is_constant(table).all(0)
        if fixed.any():
            start = start + self._weights.known(table[:, fixed], weights[:, fixed], like, node)
            table, weights = table[:, ~fixed], weights[:, ~fixed]
        made = UnpaddedProduct(node=node, weights=weights, start=start, places=places, like=like)
        if len(table) == 1:
            return self._pooled(made, table) or self._dense(made, table)
        return self._convolution(made, table, across) or (None if strict else self._gathered(made, table, nodes))

    def _distinct(self, table, weights):
        """Columns that are read several times, for different rows, as one column."""
        _, first, where = np.unique(table, axis=1, return_index=True, return_inverse=True)
        if len(first) == table.shape[1]:
            return table, weights
        order = np.argsort(first)
        rank = np.empty(len(first), np.int64)
        rank[order] = np.arange(len(first))
        merged = np.full((len(weights), len(first)), -1, np.int64)
        for column, target in enumerate(rank[where.reshape(-1)].tolist()):
            used = self._mantissas[weights[:, column]] != 0
            if (used & (merged[:, target] >= 0)).any():
                return table, weights
            merged[used, target] = weights[used, column]
        return table[:, np.sort(first)], merged

    def _dense(self, made, table) -> DraftValue:
        """One position: the operand is whole values, one after the other; weights are zero where nothing is read."""
        sources = list(dict.fromkeys(node_of(table[0]).tolist()))
        views, columns = self._views, []
        whole = []
        for number in sources:
            mask = node_of(table[0]) == number
            value, element = views.values[number], element_of(table[0][mask])
            if len(np.unique(element)) != mask.sum() or 2 * mask.sum() < value.size:
                return self._few(made, table)
            part = np.full((len(made.weights), value.size), -1, np.int64)
            part[:, element] = made.weights[:, mask]
            whole.append(views.shaped(value, (value.size,), made.node.address))
            columns.append(part)
        operand = whole[0]
        if len(whole) > 1:
            operand = views.call("join", whole, (sum(each.size for each in whole),), made.node.address)
        return self._call("dense", operand, np.concatenate(columns, 1), (len(made.weights),), made, {})

    def _few(self, made, table) -> DraftValue:
        """One position that reads few elements of large values."""
        order = np.argsort(table[0], kind="stable")
        operand = self._views.view(table[0][order], made.node.address)
        return self._call("dense", operand, made.weights[:, order], (len(made.weights),), made, {})

    def _pooled(self, made, table) -> DraftValue | None:
        """One position that reads each channel of an image for itself, as averages do."""
        value, joined = self._views.image(table, made.node.address)
        if value is None or value.shape[2] < 2:
            return None
        channel = element_of(joined[0]) % value.shape[2]
        used = np.zeros((len(made.weights), value.shape[2]), bool)
        np.logical_or.at(used, (slice(None), channel), self._mantissas[made.weights] != 0)
        if groups_of(used) != value.shape[2]:
            return None
        found = self._convolution(made, table, [1])
        return found and self._views.shaped(found, (found.size,), made.node.address)

    def _convolution(self, made, table, across) -> DraftValue | None:
        """Positions that read windows of an image."""
        image, table = self._views.image(table, made.node.address)
        if image is None:
            return None
        fixed = is_constant(table)
        fill = np.unique(self._views.code_values(table[fixed], made.like))
        window = find_window(np.where(fixed, -1, element_of(table)), image.shape, across) if len(fill) < 2 else None
        if window is None:
            return None
        kernel = self._kernel(made.weights, window, image.shape[2])
        if kernel is None:
            return None
        settings = window_settings(window)
        if kernel[1] > 1:
            settings["groups"] = kernel[1]
        if len(fill) and fill[0]:
            settings["fill"] = int(fill[0]) if fill[0] == int(fill[0]) else float(fill[0])
        return self._call("convolution", image, kernel[0], (*window.positions, len(made.weights)), made, settings)

    def _kernel(self, weights, window: RecoveredWindow, channels):
        """Weights [rows, window rows, window columns, channels / groups], as indices of mantissas, and the groups."""
        rows, taps = len(weights), window.size[0] * window.size[1]
        at = window.taps * channels + window.channels
        if len(np.unique(at)) != len(at):
            return None
        kernel = np.full((rows, taps * channels), -1, np.int64)
        kernel[:, at] = weights
        kernel = kernel.reshape(rows, *window.size, channels)
        groups = groups_of((self._mantissas[kernel] != 0).any((1, 2)))
        if groups > 1:
            size = channels // groups
            each = np.arange(rows) // (rows // groups)
            chosen = each[:, None] * size + np.arange(size)
            kernel = np.take_along_axis(kernel, chosen[:, None, None, :], 3)
        return kernel, groups

    def _gathered(self, made, table, nodes) -> DraftValue:
        """Positions whose operands lie anywhere: a table of elements, and one dense layer for all positions."""
        across = next((node.across for node in nodes if len(table) % node.across == 0), len(table))
        shape = (len(table) // across, across)
        operand = self._views.view(table.reshape(*shape, -1), made.node.address)
        return self._call("dense", operand, made.weights, (*shape, len(made.weights)), made, {})

    def _call(self, function, operand, weights, shape, made, settings) -> DraftValue:
        """A product; one whose sums do not fit float64 is computed in whole numbers."""
        address = made.node.address
        try:
            arguments, scale = self._weights.arguments(made, weights)
            return self._views.call(function, [operand, *arguments], shape, address, codes=NUMBERS, **scale, **settings)
        except TooWide:
            pass
        if function == "convolution":
            rows, moves = len(weights), {name: settings[name] for name in settings if name != "groups"}
            weights = _ungrouped(weights, settings.get("groups", 1))
            width = int(np.prod(weights.shape[1:]))
            operand = self._views.call("patches", [operand], (*shape[:-1], width), address, window=weights.shape[1:3],
                                       **moves)
            weights = weights.reshape(rows, width)
        arguments, exact = self._weights.accumulated(made, weights)
        return self._views.call("accumulated", [operand, *arguments], shape, address, codes=NUMBERS, **exact)


def _ungrouped(weights: np.ndarray, groups: int) -> np.ndarray:
    """Weights of a convolution with groups as weights for all channels; -1 stands for 0."""
    rows, *window, size = weights.shape
    spread = np.full((rows, *window, groups * size), -1, np.int64)
    for row in range(rows):
        first = row // (rows // groups) * size
        spread[row, ..., first:first + size] = weights[row]
    return spread
