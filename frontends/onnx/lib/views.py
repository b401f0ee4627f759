"""How a tensor of a file lies in a node's result.

A file may hold images with channels last, flatten, transpose, slice or pad them. None of this is computation: each
element of such a tensor is one element of some node's result, or a zero. A view holds the number of that element, so
whatever a file does to a layout is done to an array of numbers, and no layout needs a rule of its own.

    result of a node, 1 sample of 2 channels and 2 pixels:  [[[0, 1], [2, 3]]]
    the same with channels last, by Transpose:              [[[0, 2], [1, 3]]]
    flattened:                                              [[0, 2, 1, 3]]
"""

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import permutations

import numpy as np
from concord.frontends.onnx.lib.problems import Refused
from concord.net.arithmetic.windows import TimeAxis, steps_of_image

#: Largest number of elements of a tensor.
LIMIT = 1 << 25
#: The number of an element that is a zero of padding.
ZERO = -1


class SampleForm(StrEnum):
    """Form of one sample."""

    IMAGE = "image"  #: [channels, rows, columns]
    VECTOR = "vector"  #: [elements]
    SEQUENCE = "sequence"  #: [time, elements]
    OPEN = "open"  #: The network's input before the first node that needs one of the others.


@dataclass(kw_only=True, eq=False)
class ViewSource:
    """The network's input, or the result of a node.

    Attributes:
        name:    Name of the node, or "" for the input.
        form:    Form of one sample.
        order:   int32[samples, *shape], the number of each element. Numbers of nodes count up in C order; those of
            the input count in the order of the file's tensor.
        guessed: Whether a node that the file needs for this result was refused, so that its layout is a guess.
        backward: For a sequence of a recurrent node: how many of its elements, the last ones, run backward in time.
        mixed:   Whether elements of a sequence hold both directions, so that no time step is its last one.
        open_time: Whether it is a sequence, and the file leaves its number of time steps open.
    """

    name: str
    form: SampleForm
    order: np.ndarray
    guessed: bool = False
    backward: int = 0
    mixed: bool = False
    open_time: bool = False
    _c_order: np.ndarray | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.order.shape[1:]

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.order)

    @property
    def counts_up(self) -> bool:
        """Whether the numbers of the elements count up in C order."""
        return self.name != ""

    def in_c_order(self, numbers: np.ndarray) -> np.ndarray:
        """Where elements of these numbers lie in C order; ZERO stays."""
        if self.counts_up:
            return numbers
        if self._c_order is None:
            self._c_order = np.full(self.order.size + 1, ZERO, np.int32)
            self._c_order[self.order.reshape(-1)] = np.arange(self.order.size)
        return self._c_order[numbers]


def counting(name: str, form: SampleForm, samples: int, shape: tuple[int, ...], **fields) -> ViewSource:
    """A source whose numbers count up.

    Raises:
        Refused: it is too large.
    """
    check_size((samples, *shape))
    order = np.arange(samples * int(np.prod(shape)), dtype=np.int32).reshape(samples, *shape)
    return ViewSource(name=name, form=form, order=order, **fields)


def check_size(shape: tuple[int, ...]):
    """Refuse a tensor that is too large to follow."""
    elements = 1
    for size in shape:
        elements *= int(size)
    if elements > LIMIT:
        raise Refused(f"its result {list(map(int, shape))} has {elements:,} elements, more than {LIMIT:,}",
                      "export the network for a batch of one, or make it smaller")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class View:
    """A tensor of a file.

    Attributes:
        source:  What its elements are elements of.
        numbers: int32 of the shape of the tensor in the file: number of each element in its source, or ZERO.
    """

    source: ViewSource
    numbers: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor in the file."""
        return self.numbers.shape

    @property
    def indices(self) -> np.ndarray:
        """Index of each element in its source in C order."""
        return self.source.in_c_order(self.numbers)

    def at(self, numbers: np.ndarray) -> "View":
        """Another tensor of elements of the same source."""
        check_size(numbers.shape)
        return View(source=self.source, numbers=numbers)


def whole(source: ViewSource) -> View:
    """All of a source, in its own order."""
    return View(source=source, numbers=source.order)


def as_file(source: ViewSource, dimensions: int) -> View:
    """A whole image as a file of that many dimensions has it."""
    return View(source=source, numbers=source.order[:, :, 0] if dimensions == 1 else source.order)


def steps_in_image(shape: tuple[int, ...], indices: np.ndarray) -> tuple[TimeAxis, np.ndarray] | None:
    """How a tensor [samples, time, elements] reads an image as a sequence; None if time is no axis of the image.

    Args:
        shape:   Channels, rows and columns of the image.
        indices: Index of each element of the tensor in the images [samples, *shape] in C order.

    Returns:
        The axis of time, and int[elements]: where each element lies in the vector of a time step, see `ToSequence`.
    """
    images = np.arange(indices.size).reshape(-1, *shape) if indices.size % np.prod(shape) == 0 else None
    for time in (TimeAxis.COLUMNS, TimeAxis.ROWS) if images is not None else ():
        steps = steps_of_image(images, time)
        order = np.argsort(steps[0, 0])
        found = order[np.searchsorted(steps[0, 0], indices[0, 0], sorter=order) % len(order)]
        if steps.shape == indices.shape and np.array_equal(steps[:, :, found], indices):
            return time, found
    return None


def axes(order: np.ndarray) -> tuple[int, ...] | None:
    """For each axis of a sample, the axis of the file's sample that it is; None if elements lie in another order.

    Args:
        order: int32[samples, *shape], numbers of elements that count up in the file.
    """
    shape, one = order.shape[1:], order[0] - order[0].min()
    for order_of_axes in permutations(range(len(shape))):
        theirs = np.empty(len(shape), int)
        theirs[list(order_of_axes)] = shape
        if np.array_equal(np.arange(one.size).reshape(theirs).transpose(order_of_axes), one):
            return order_of_axes
    return None
