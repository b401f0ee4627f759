"""Tables of elements as heads of an attention, and heads as images again."""

from itertools import permutations

import numpy as np
from concord.twin.recovery.nodes.elements import element_of, node_of, read_by
from concord.twin.recovery.tensors.drafts import RESULTS, DraftValue
from concord.twin.recovery.tensors.views import Views


class HeadViews(Views):
    """Makes values of tables, also of heads, whose axes are heads, positions and elements."""

    def heads(self, table: np.ndarray, address: int) -> DraftValue:
        """The value of a table of three axes: neighbouring channels of a whole image that are cut into heads, if it can
        be that, with axes in any order.
        """
        return self._cut(table, address) or self.view(table, address)

    def merged(self, table: np.ndarray) -> np.ndarray:
        """The same elements, but those of `RESULTS` in images with the channels of all heads side by side."""
        table = table.copy()
        for number in read_by(table):
            value = self.values[number]
            if value.heads == RESULTS:
                grid, mask = self.all(value).transpose(1, 0, 2), node_of(table) == number
                image = self.view(grid.reshape(*_queries(value), -1), value.draft.address)
                moved = np.empty(value.size, np.int64)
                moved[element_of(grid).reshape(-1)] = self.all(image).reshape(-1)
                table[mask] = moved[element_of(table[mask])]
        return table

    def _cut(self, table, address) -> DraftValue | None:
        source = self._only(table)
        if source is None or table.size % (positions := int(np.prod(source.shape[:-1], dtype=int))):
            return None
        for axes in permutations(range(3)):
            moved = table.transpose(axes)
            flat = moved.reshape(*source.shape[:-1], table.size // positions)
            found = self._whole(flat, address) or self._part(flat, address)
            if found is not None:
                found = self.shaped(found, moved.shape, address)
                back = tuple(1 + axes.index(axis) for axis in range(3))
                return found if back == (1, 2, 3) else self.call("transpose", [found], table.shape, address, axes=back)
        return None


def _queries(value: DraftValue) -> tuple[int, int]:
    """Rows and columns of the image of queries from which heads were computed."""
    positions, image = value.shape[1], value
    while image.heads or len(image.shape) != 3 or image.shape[0] * image.shape[1] != positions:
        if image.draft is None or not image.draft.reads:
            return 1, positions
        image = image.draft.reads[0]
    return image.shape[:2]
