"""Maxima over windows of images, at borders too."""

import numpy as np
from concord.twin.recovery.nodes.elements import element_of, is_constant, node_of
from concord.twin.recovery.nodes.nodes import across_of, shape_of
from concord.twin.recovery.tensors.drafts import DraftValue
from concord.twin.recovery.tensors.views import Maker
from concord.twin.recovery.tensors.windows import RecoveredWindow, find_clipped, find_window, window_settings

_LOWEST = 0xFC00  #: Reference to minus infinity, which no maximum sees.


class Pools(Maker):
    """Makes the calls of maxima over windows."""

    def emit(self, nodes, live, tables: list[np.ndarray], strict: bool) -> DraftValue | None:
        """The largest value of each window; None where the windows lie in no single image, and `strict` is true.

        Args:
            nodes:  Strips of one layer.
            live:   bool[width], which channels are wanted.
            tables: References [positions, width, pixels] to numbers.
        """
        node, table = nodes[0], tables[0][:, live]
        positions, width, pixels = table.shape
        source, flat = self._views.image(table.reshape(positions, -1), node.address)
        if source is None:
            return None if strict else self._largest(nodes, table)
        table, fixed = flat.reshape(table.shape), is_constant(flat)
        fill = np.unique(self._constants.bits(flat[fixed]))
        if len(fill) < 2 and not fixed.all(0).any():
            window = find_window(np.where(fixed, -1, element_of(flat)), source.shape, across_of(nodes, positions))
            if window is not None and window.dilation == (1, 1) and self._pools(window, width, pixels, source):
                settings = window_settings(window)
                if len(fill):
                    settings["fill"] = float(fill.view(self._constants.dtype)[0])
                return self._views.call("max_pool", [source], (*window.positions, width), node.address,
                                       window=window.size, **settings)
        clipped = self._clipped(table, source) if (fill.view(self._constants.dtype) == -np.inf).all() else None
        if clipped:
            return self._views.call("max_pool", [source], (*clipped.positions, width), node.address,
                                    window=clipped.size, **window_settings(clipped), fill=float("-inf"))
        return None if strict else self._largest(nodes, table)

    def _largest(self, nodes, table) -> DraftValue:
        """The largest value of pixels that lie anywhere."""
        node, (positions, width, pixels) = nodes[0], table.shape
        shape = shape_of(nodes, positions, width)
        value = self._views.view(table[..., 0].reshape(shape), node.address)
        for pixel in range(1, pixels):
            value = self._views.call("maximum", [value, self._views.view(table[..., pixel].reshape(shape),
                                                                      node.address)], shape, node.address)
        return value

    @staticmethod
    def _clipped(table, source) -> RecoveredWindow | None:
        """The window whose pixels inside the image are those of a table [positions, channels, pixels]."""
        if len(source.shape) != 3 or table.shape[1] != source.shape[2]:
            return None
        fixed, element = is_constant(table), element_of(table)
        channels = np.arange(table.shape[1])[:, None]
        if (fixed != fixed[:, :1]).any() or (~fixed & (element != element[:, :1] + channels)).any():
            return None
        pixels = np.where(fixed[:, 0], -1, element[:, 0] // source.shape[2])
        whole = not (element[:, 0][~fixed[:, 0]] % source.shape[2]).any()
        return find_clipped(pixels, source.shape[:2]) if whole else None

    @staticmethod
    def _pools(window, width, pixels, source) -> bool:
        """Whether a window reads all of its pixels, channel by channel."""
        channels = window.channels.reshape(width, pixels)
        taps = np.sort(window.taps.reshape(width, pixels), 1)
        return (width == source.shape[2] and (channels == np.arange(width)[:, None]).all()
                and pixels == window.size[0] * window.size[1] and bool((taps == np.arange(pixels)).all()))


def even(tables: list[np.ndarray]) -> list[np.ndarray]:
    """Tables of pools with as many pixels for all windows: windows at borders have minus infinity for the others."""
    if tables[0].ndim == 2:
        return tables
    most = max(table.shape[2] for table in tables)
    return [np.pad(table, ((0, 0), (0, 0), (0, most - table.shape[2])), constant_values=_LOWEST) for table in tables]


def pool_order(values, table: np.ndarray) -> np.ndarray | None:
    """The order of positions by the middles of their windows; None where these lie in no single image."""
    fixed = is_constant(table)
    sources = np.unique(node_of(table[~fixed]))
    if len(sources) != 1:
        return None
    shape = values[int(sources[0])].shape
    column = int((~fixed).all((0, 2)).argmax()) if (~fixed).all((0, 2)).any() else int((~fixed).any((0, 2)).argmax())
    if len(shape) != 3 or fixed[:, column].all(1).any():
        return None
    row, across = np.divmod(element_of(table[:, column]) // shape[2], shape[1])
    keys = []
    for axis in (across, row):
        low = np.where(fixed[:, column], 1 << 30, axis).min(1)
        keys.append(low + np.where(fixed[:, column], -1, axis).max(1))
    return np.lexsort(keys)
