"""Items of a flow by their references, as values of a script."""

import numpy as np
from concord.twin.flow.flow import Flow, Origin, Refs
from concord.twin.generic.values import Lines, MemoryImages, StoredEntries

INPUT = "x"  #: Name of the input, [batch, elements]: the words that the host sends, one after the other.


class Items:
    """What the steps so far have made.

    Args:
        flow: The flow.

    Attributes:
        flow:    The flow.
        config:  Machine of the firmware.
        images:  Contents of memories that the firmware brings.
        lines:   The lines so far.
        words:   Name of [batch, words, M] by index of the value, for values of words.
        entries: Entries by index of the value, for values of VectorRf.
        tiles:   Name of [batch, tiles, N, N] by index of the value, for tiles that the program has loaded.
        input:   Index of the value of the input.
    """

    def __init__(self, flow: Flow):
        self.flow, self.config, self.lines = flow, flow.firmware.config, Lines()
        self.images = MemoryImages(flow.firmware)
        self.words: dict[int, str] = {}
        self.entries: dict[int, StoredEntries] = {}
        self.tiles: dict[int, str] = {}
        self.input = next(k for k, value in enumerate(flow.values) if value.origin == Origin.INPUT)

    def taken_words(self, refs: Refs) -> str:
        """Name of words [batch, *refs, M]."""
        names, counts, items = {}, {}, refs.item
        for value in np.unique(refs.value).tolist():
            one = self.flow.values[value]
            if one.origin == Origin.IMAGE:
                names[value], counts[value], items = self._brought(refs, items, value, self.images.words(one.mem))
            else:
                names[value], counts[value] = self.words.get(value) or self._first_words(one), one.count
        return self.lines.gather(Refs(value=refs.value, item=items), names, counts, self.config.mfu_lanes)

    def constant(self, refs: Refs):
        """float16[*refs, M], where all words are those that the firmware brings; otherwise None."""
        used = [self.flow.values[value] for value in np.unique(refs.value).tolist()]
        if len(used) != 1 or used[0].origin != Origin.IMAGE:
            return None
        return self.images.words(used[0].mem)[refs.item]

    def taken_entries(self, refs: Refs, view: str, parts: int = 1) -> str:
        """Name of entries, or of parts of them.

        Args:
            refs:  References to entries, or to parts where they have several.
            view:  Attribute of `StoredEntries` that is taken.
            parts: Number of parts of an entry, each of which is an item of `refs`.

        Returns:
            Name of [batch, *refs, elements of a part].
        """
        names, counts, items = {}, {}, refs.item
        size = (1 if view == "exponents" else self.config.native_dim) // parts
        for value in np.unique(refs.value).tolist():
            if value in self.entries:
                names[value] = getattr(self.entries[value], view)
                counts[value] = self.flow.values[value].count * parts
            else:
                image = self.images.entries(view).reshape(-1, size)
                names[value], counts[value], items = self._brought(refs, items, value, image)
        return self.lines.gather(Refs(value=refs.value, item=items), names, counts, size)

    def taken_tiles(self, refs: Refs, *, integer: bool) -> np.ndarray | str:
        """Native tiles in the mode of a product: float64[*refs, N, N], or the name of [batch, *refs, N, N] where the
        program loads them."""
        n, images = self.config.native_dim, self.images.tiles(refs.item, integer=integer)
        used = np.unique(refs.value).tolist()
        names, counts = {value: self.tiles[value] for value in used if value in self.tiles}, self._counts(refs)
        if not names:
            return images
        items = refs.item
        for value in used:
            if value not in names:
                names[value] = self.lines.call("start", INPUT, self.lines.store("tiles", images.reshape(-1, n, n)))
                items = np.where(refs.value == value, np.arange(items.size).reshape(items.shape), items)
                counts[value] = items.size
        taken = self.lines.gather(Refs(value=refs.value, item=items), names, counts, n * n)
        return self.lines.call("reshape", taken, shape=(*items.shape, n, n))

    def _counts(self, refs):
        return {value: self.flow.values[value].count for value in np.unique(refs.value).tolist()}

    def _first_words(self, one):
        """Name of the words of the input."""
        return self.lines.call("reshape", INPUT, shape=(one.count, self.config.mfu_lanes))

    def _brought(self, refs, items, value, image) -> tuple[str, int, np.ndarray]:
        """Name of those items of an image that are read, their number, and `items` with their numbers."""
        here = refs.value == value
        own, numbers = np.unique(refs.item[here], return_inverse=True)
        items = items.copy()
        items[here] = numbers
        stored = self.lines.store(self.flow.values[value].mem.name.lower(), image[own])
        return self.lines.call("start", INPUT, stored), len(own), items
