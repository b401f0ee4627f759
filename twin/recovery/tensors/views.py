"""Tables of elements as views of values: all of one, a part, a concatenation, axes turned, or else a stored table."""

from itertools import permutations

import numpy as np
from concord.twin.lib.script import ARRANGING, QuantizerCall
from concord.twin.recovery.nodes.elements import CODES, Constants, element_of, is_constant, node_of, read_by, refs
from concord.twin.recovery.nodes.nodes import ProgramNode, shape_of
from concord.twin.recovery.tensors.drafts import Constant, Draft, DraftValue

NUMBERS = DraftValue(shape=())  #: A value that holds numbers.


class Views:
    """Makes values that hold the elements of tables, and the drafts of their calls.

    References name values here: their upper half is the index of a value in `values`.

    Args:
        constants: The constants.

    Attributes:
        values: All values; the first two indices stand for constants.
        drafts: Drafts of the present region, in order.
        first:  A value that has the batch, for values of constants.
    """

    def __init__(self, constants: Constants):
        self.constants = constants
        self.values: list[DraftValue | None] = [None, None]
        self.drafts: list[Draft] = []
        self.first = NUMBERS
        self._indices: dict[DraftValue, int] = {}
        self._made: dict[tuple, DraftValue] = {}

    def index(self, value: DraftValue) -> int:
        """Index of a value, which joins `values`."""
        if value not in self._indices:
            self._indices[value] = len(self.values)
            self.values.append(value)
        return self._indices[value]

    def all(self, value: DraftValue) -> np.ndarray:
        """References to all elements of a value, in its shape."""
        return refs(self.index(value), np.arange(value.size)).reshape(value.shape)

    def call(self, function: str, arguments: list, shape: tuple[int, ...], address: int, codes=None,
             **settings) -> DraftValue:
        """The result of a call; the same call with the same arguments is made once.

        Args:
            codes: A value of the same kind of codes, or of numbers; by default, the first value among the arguments.
        """
        if codes is None:
            codes = next((each for each in arguments if isinstance(each, DraftValue)), NUMBERS)
        if "to" in settings:
            settings = {"shape": settings["to"]}
        key = (function, tuple(self._key(each) for each in arguments), tuple(sorted(settings.items())), shape)
        if key not in self._made:
            result = DraftValue(shape=shape, codes=codes.codes, zero=codes.zero, limit=codes.limit)
            result.draft = Draft(function=function, arguments=arguments, settings=settings, result=result,
                                 address=address)
            self.drafts.append(result.draft)
            self._made[key] = result
            first = next(iter(result.draft.reads), NUMBERS)
            result.heads = first.heads * (function not in ARRANGING and shape[:-1] == first.shape[:-1])
        return self._made[key]

    def codes(self, made: QuantizerCall, source: DraftValue, shape: tuple[int, ...], address: int) -> DraftValue:
        """The codes of a value."""
        result = self.call(made.function, [source], shape, address, codes=NUMBERS, **dict(made.settings))
        result.codes, result.zero, result.limit = made.codes, made.zero, made.limit
        return result

    def _key(self, argument):
        if isinstance(argument, Constant):
            places = b"" if argument.places is None else argument.places.tobytes()
            return argument.values.tobytes(), argument.values.dtype, argument.values.shape, argument.memory, places
        return id(argument)

    def constant(self, table: np.ndarray, role: str) -> Constant:
        """References to constant numbers as a stored tensor."""
        memory, places = self.constants.stored(table)
        values = self.constants.values(table)
        return Constant(values=values, role=role, memory=memory, places=places if memory else None)

    def view(self, table: np.ndarray, address: int) -> DraftValue:
        """The value that holds the elements of a table int64[..., columns], of which some are no constants."""
        return self._whole(table, address) or self._part(table, address) or self._joined(table, address) \
            or self._transposed(table, address) or self._taken(table, address)

    def _only(self, table) -> DraftValue | None:
        """The only value that a table reads, which has no constants."""
        sources = read_by(table)
        return self.values[sources[0]] if len(sources) == 1 and not is_constant(table).any() else None

    def _whole(self, table, address) -> DraftValue | None:
        source = self._only(table)
        if source is None or not np.array_equal(element_of(table).reshape(-1), np.arange(source.size)):
            return None
        return self.shaped(source, table.shape, address)

    def shaped(self, source: DraftValue, shape: tuple[int, ...], address: int) -> DraftValue:
        """A value in another shape."""
        if source.shape == shape:
            return source
        if len(shape) == 1:
            return self.call("flatten", [source], shape, address)
        return self.call("reshape", [source], shape, address, to=shape)

    def _part(self, table, address) -> DraftValue | None:
        """Neighbouring elements along the last axis."""
        source = self._only(table)
        if source is None:
            return None
        element, first = element_of(table), int(element_of(table).reshape(-1)[0])
        if source.shape[:-1] != table.shape[:-1]:
            if table.ndim > 1 or (element != np.arange(first, first + len(element))).any():
                return None
            source = self.call("flatten", [source], (source.size,), address)
        last = first + table.shape[-1]
        grid = np.arange(source.size).reshape(source.shape)[..., first:last]
        if last > source.shape[-1] or grid.shape != table.shape or (element != grid).any():
            return None
        return self.call("part", [source], table.shape, address, first=first, last=last)

    def _joined(self, table, address) -> DraftValue | None:
        """Parts of several values along the last axis."""
        if is_constant(table).any():
            return None
        flat = node_of(table).reshape(-1, table.shape[-1])
        if (flat != flat[0]).any():
            return None
        moved = element_of(table).reshape(flat.shape)
        cuts = np.flatnonzero((np.diff(flat[0]) != 0) | (np.diff(moved[0]) != 1)) + 1
        if len(cuts) == 0 or 2 * len(cuts) > table.shape[-1]:
            return None
        parts = [self._whole(each, address) or self._part(each, address) for each in np.split(table, cuts, -1)]
        if not all(parts):
            return None
        return self.call("join", parts, table.shape, address)

    def _transposed(self, table, address) -> DraftValue | None:
        """All of an image with its axes in another order."""
        source = self._only(table)
        if source is None or len(source.shape) != 3 or source.size != table.size:
            return None
        grid, wanted = np.arange(source.size).reshape(source.shape), element_of(table).reshape(-1)
        for axes in permutations(range(3)):
            if (grid.transpose(axes).reshape(-1) == wanted).all():
                shape = tuple(source.shape[axis] for axis in axes)
                turned = self.call("transpose", [source], shape, address, axes=tuple(axis + 1 for axis in axes))
                return self.shaped(turned, table.shape, address)
        return None

    def _taken(self, table, address) -> DraftValue:
        """Elements by a stored table."""
        fixed, sources = is_constant(table), read_by(table)
        arguments, index, first = [], np.zeros(table.shape, np.int32), 0
        for number in sources:
            source, mask = self.values[number], ~fixed & (node_of(table) == number)
            index[mask] = first + element_of(table[mask])
            arguments.append(source)
            first += source.size
        if fixed.any():
            kept, where = np.unique(table[fixed], return_inverse=True)
            index[fixed] = first + where.reshape(-1)
            like = arguments[0] if arguments else self.first
            arguments.append(self.started(kept, like, address, "fill", like))
        stored = Constant(values=index, role="table")
        return self.call("take", [stored, *arguments], table.shape, address, codes=arguments[0])

    def image(self, table, address):
        """The image that a table reads, one value or several joined by channel, and the table of its elements.

        The image is None where the table reads something else.
        """
        table, sources, values = self._as_images(table, address)
        if not values or any(len(value.shape) != 3 or value.shape[:2] != values[0].shape[:2] for value in values):
            return None, table
        if len(values) == 1:
            return values[0], table
        width = sum(value.shape[2] for value in values)
        joined = self.call("join", values, (*values[0].shape[:2], width), address)
        first, moved = 0, table.copy()
        for number, value in zip(sources, values, strict=True):
            mask = node_of(table) == number
            pixel, channel = np.divmod(element_of(table[mask]), value.shape[2])
            moved[mask] = refs(self.index(joined), pixel * width + first + channel)
            first += value.shape[2]
        return joined, moved

    def _as_images(self, table, address):
        """A table, what it reads, and these values, with sequences as images of one row."""
        table, sources, values = table.copy(), [], []
        for number in read_by(table):
            value = self.values[number]
            if len(value.shape) == 2:
                value, mask = self.shaped(value, (1, *value.shape), address), node_of(table) == number
                table[mask] = refs(self.index(value), element_of(table[mask]))
            sources.append(self.index(value))
            values.append(value)
        return table, sources, values

    def shape(self, nodes: list[ProgramNode], tables: list[np.ndarray]) -> tuple[int, ...]:
        """Shape of a result of the size of tables [positions, elements]; elements of an image keep its shape."""
        for table in tables:
            sources = np.unique(node_of(table[~is_constant(table)]))
            value = self.values[int(sources[0])] if len(sources) == 1 else None
            if value is not None and len(value.shape) == 3 and len(table) == value.shape[0] * value.shape[1]:
                return *value.shape[:2], table.shape[1]
        return shape_of(nodes, *tables[0].shape)

    def started(self, table, like: DraftValue, address: int, role: str, codes: DraftValue) -> DraftValue:
        """Constants as a value.

        Args:
            like:  A value that has the batch.
            codes: A value of the same kind of codes, or of numbers.
        """
        if (node_of(table) == CODES).any():
            constant = Constant(values=self.code_values(table, codes), role=role)
        else:
            constant = self.constant(table, role)
        return self.call("start", [like, constant], table.shape, address, codes=codes)

    def code_values(self, table: np.ndarray, like: DraftValue) -> np.ndarray:
        """float64, constant codes as the codes of another value."""
        if like.codes == "blocks":
            return self.constants.reals(table)
        return self.constants.mantissas(table).astype(np.float64) + like.zero


def reading_order(rows: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The order of positions: that of the elements in a column without constants, as they lie in an image.

    Args:
        rows:  References [positions, elements].
        first: Indices of positions that differ.
    """
    steady = ~is_constant(rows[first]).any(0)
    moving = steady & (rows[first] != rows[first[:1]]).any(0)
    if not moving.any():
        return first
    column = rows[first, moving.argmax()]
    return first[np.argsort(column, kind="stable")]


class Maker:
    """Makes calls of one kind on what tables of elements amount to.

    Args:
        views: Makes values of tables, and has the constants.
    """

    def __init__(self, views: Views):
        self._views, self._constants = views, views.constants
