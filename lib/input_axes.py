"""The axes of a network's input: their order in its file, and the order in which a machine reads them."""

from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

#: Names of the axes that a machine reads, by their number.
NAMES = {1: ("numbers",), 2: ("channels", "columns"), 3: ("channels", "rows", "columns")}


class Order(StrEnum):
    """Order of the axes of a sample."""

    FILE = "file"  #: as the file of the network takes them
    MACHINE = "machine"  #: as the machine reads them: images [channels, rows, columns]


@dataclass(frozen=True, kw_only=True, slots=True)
class InputAxes:
    """Shape of one sample, or of one time step of a sequence, in the network's file and for the machine.

    Attributes:
        shape: Shape in which the machine reads it.
        axes:  For each axis of `shape`, the axis of the file that it is: (2, 0, 1) where the file has channels last.
        file:  Shape in the file. It may have axes that the network joins or parts, such as 28 x 28 that it flattens.

    Raises:
        ValueError: the three do not fit each other.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...] = ()
    file: tuple[int, ...] = ()

    def __post_init__(self):
        object.__setattr__(self, "axes", tuple(self.axes) or tuple(range(len(self.shape))))
        if sorted(self.axes) != list(range(len(self.shape))):
            raise ValueError(f"axes {list(self.axes)} do not name each axis of the shape {list(self.shape)} once")
        object.__setattr__(self, "file", tuple(self.file) or self._in_file(self.shape))
        if prod(self.file) != prod(self.shape):
            raise ValueError(f"an input {words(self.file)} in the file has not as many numbers as {words(self.shape)}")

    @property
    def record(self) -> dict[str, list[int]]:
        """The attributes as JSON has them."""
        return {"shape": list(self.shape), "axes": list(self.axes), "file": list(self.file)}

    @classmethod
    def from_record(cls, record: dict[str, list[int]] | None) -> "InputAxes | None":
        """The axes of a record; None for none, which files of earlier versions have.

        Raises:
            ValueError: they are no such axes.
        """
        if record is None:
            return None
        try:
            values = {name: tuple(record[name]) for name in ("shape", "axes", "file")}
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"the axes of the input are damaged ({record!r}); make the file again") from error
        if not all(type(size) is int and size >= 0 for sizes in values.values() for size in sizes):
            raise ValueError(f"the axes of the input are damaged ({record!r}); make the file again")
        return cls(**values)

    def indices(self, given: tuple[int, ...], order: Order = Order.FILE, image: bool = False) -> "np.ndarray":
        """For each number in the machine's order, its index in a sample that is flattened in C order.

        Args:
            given: Shape of the sample. Axes of length 1 do not count, and a vector is a sample that was flattened.
            order: Order of its axes.
            image: Whether the sample is known to be an image [channels, rows, columns].

        Raises:
            ValueError: the sample has another shape in this order.
        """
        import numpy as np  # here, so that the command line takes `Order` without it

        numbers, flat, transposed = np.arange(prod(self.shape)), len(_sides(given)) < 2, self._in_file(self.shape)
        if prod(given) == len(numbers):
            if order is Order.MACHINE or image and len(self.shape) == 3:
                if flat or _sides(given) == _sides(self.shape):
                    return numbers
            elif image and _sides(given) != _sides(self.file) and (*given[1:], given[0]) == self.file:
                return np.moveaxis(numbers.reshape(given), 0, -1).reshape(-1)  # the network flattens channels last
            elif flat or len(_sides(self.file)) < 2 or _sides(given) in (_sides(self.file), _sides(transposed)):
                return numbers.reshape(transposed).transpose(self.axes).reshape(-1)
        wanted = self.shape if order is Order.MACHINE else self.file
        raise ValueError(f"takes {words(wanted)}")

    def note(self, given: tuple[int, ...], order: Order = Order.FILE, image: bool = False) -> str:
        """A sentence that says which order was taken, where a sample fits both; empty where only one order fits."""
        if image and len(self.shape) == 3 or len(_sides(given)) > 1 and _sides(given) != _sides(self.shape):
            return ""
        if (self.indices(self.file) == self.indices(self.shape, Order.MACHINE)).all():
            return ""
        try:
            self.indices(given, Order.MACHINE if order is Order.FILE else Order.FILE)
        except ValueError:
            return ""
        names = NAMES.get(len(self.shape), tuple(f"axis {axis}" for axis in range(len(self.shape))))
        both = {Order.FILE: f"{' x '.join(self._in_file(names))}, the order of the network's file",
                Order.MACHINE: f"{' x '.join(names)}, the order of the machine"}
        other = Order.MACHINE if order is Order.FILE else Order.FILE
        return f"a sample, {words(given)}, is taken as {both[order]}; `--order {other}` takes it as {both[other]}"

    def advice(self, given: tuple[int, ...], order: Order, image: bool | None) -> str:
        """How to make samples fit that have another shape; `image` is None for an array that no TOML file describes."""
        if prod(given) != prod(self.shape):
            return "; give the data that it was trained on"
        if order is Order.MACHINE:
            return "; leave out `order`, or transpose the array"
        if not image and _sides(given) == _sides(self.shape):
            return (", as its file does; where the array has the machine's order, give `--order machine`, or "
                    "`order=\"machine\"` in Python")
        if image is False and len(self.shape) == len(given) == 3 and (given[2], *given[:2]) == self.shape:
            return ", channels first; write `layout = \"hwc\"` below [preprocessing] in the data's TOML file"
        if image is None or sorted(_sides(given)) == sorted(_sides(self.file)):
            return ", as its file does; transpose or reshape the array"
        return f"; write `shape = {list(self.file)}` below [preprocessing] in the data's TOML file"

    def _in_file(self, values: tuple) -> tuple:
        """Something for each axis of `shape`, in the order of the file."""
        return tuple(values[self.axes.index(axis)] for axis in range(len(self.axes)))


def words(shape: tuple[int, ...]) -> str:
    """A shape in words."""
    return "1 number" if shape == (1,) else " x ".join(map(str, shape)) + (" numbers" if len(shape) == 1 else "")


def _sides(shape: tuple[int, ...]) -> list[int]:
    """Sizes of the axes that are longer than 1."""
    return [size for size in shape if size != 1]


def check_table(table: "np.ndarray | None", numbers: int):
    """Refuse the table of an embedding that does not fit samples, or time steps, of so many numbers.

    Raises:
        ValueError: it does not.
    """
    if table is None:
        return
    import numpy as np

    with np.errstate(over="ignore"):
        finite = np.isfinite(table.astype(np.float16)).all()
    if table.ndim != 2 or not table.size or numbers % table.shape[1] or not finite:
        raise ValueError(f"the table of the embedding is {table.dtype}{list(table.shape)}, and an input has {numbers} "
                         "numbers; vectors are needed of which an input is made, of finite numbers in binary16")
