"""Collects the nodes of a float network, and finds what form a tensor of a file has."""

from dataclasses import dataclass

import numpy as np
from concord.front.lib.problems import Refused
from concord.front.lib.step import Step, misplaced
from concord.front.lib.views import ZERO, Form, Source, View, axes, counting
from concord.model.floating.grid import Grid
from concord.model.floating.network import INPUT, Node, Op


class Decided(Exception):
    """The form of the input became known after nodes had been made of it: conversion starts again with this form."""

    def __init__(self, source: Source):
        super().__init__()
        self.source = source


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Image:
    """An image that a node reads.

    Attributes:
        source:  What gives it.
        padding: Zeros above, below, left and right that the file puts around it.
    """

    source: Source
    padding: tuple[int, int, int, int]


class Builder:
    """The nodes that are made.

    Args:
        source: The network's input.
    """

    def __init__(self, source: Source):
        self.input = source
        self.nodes: list[Node] = []
        self.notes: list[str] = []
        #: Names of tensors that hold results of nodes, where a node of the file gives more than these.
        self.tensors: dict[str, str] = {}
        #: Integers of constants by the names of their tensors: a scale and a zero point for each element.
        self.grids: dict[str, Grid] = {}
        self._names: set[str] = set()
        self._derived: dict[tuple[str, Op], Source] = {}
        self._touched = False

    def add(self, step: Step, op: Op, sources: list[Source], form: Form, shape: tuple[int, ...], *,
            attributes: dict | None = None, tensors: dict | None = None, **fields) -> Source:
        """Add a node; its result has the form and the shape of one sample."""
        made = counting(self._unique(step.label()), form, sources[0].samples, shape,
                        guessed=any(source.guessed for source in sources), **fields)
        self._touched |= any(source.form is Form.OPEN for source in sources)
        node = Node(
            name=made.name, op=op, sources=tuple(source.name for source in sources), attributes=attributes or {},
            tensors={key: np.asarray(value, np.float32) for key, value in (tensors or {}).items()})
        self.nodes.append(node)
        return made

    def same(self, step: Step, op: Op, view: View, **fields) -> View:
        """Add a node that computes element by element, and the view of its result that lies as `view` does."""
        source = view.source
        made = self.add(step, op, [source], source.form, source.shape, backward=source.backward, mixed=source.mixed,
                        **fields)
        return View(source=made, numbers=view.places)

    def note(self, text: str):
        """Keep a sentence on what is left to the host."""
        if text not in self.notes:
            self.notes.append(text)

    def maker(self, source: Source) -> Node | None:
        """The node that gives a result, or None for the input."""
        return next((node for node in reversed(self.nodes) if node.name == source.name), None)

    def placeholder(self, step: Step) -> str:
        """A name for the result of a refused node."""
        return self._unique(step.label())

    def image(self, view: View) -> Image:
        """The image that a tensor [samples, channels, columns] or [samples, channels, rows, columns] holds."""
        if view.numbers.ndim not in (3, 4):
            raise misplaced(f"it needs an image, but its input has the shape {list(view.shape)}")
        numbers = view.numbers[:, :, None] if view.numbers.ndim == 3 else view.numbers
        inner, padding = _unpadded(numbers)
        self._decide(view.source, Form.IMAGE, inner)
        if not _equal(view.source, inner, Form.IMAGE):
            raise misplaced(f"its input {list(view.shape)} is not an image as it is computed, with the channels in the "
                            f"second place, but a part of it, or in another order{_hint(view.source)}")
        return Image(source=view.source, padding=padding)

    def vector(self, view: View) -> tuple[Source, np.ndarray]:
        """The vector whose elements a tensor [samples, ...] holds.

        Returns:
            What gives the vector, and int[elements of a row]: where each lies in the vector, or ZERO.
        """
        rows = view.numbers.reshape(len(view.numbers), -1) if view.numbers.ndim > 1 else view.numbers[None]
        flat = self.flat(view.at(rows))
        source, places = flat.source, flat.numbers
        size = source.shape[0]
        first = np.where(places[0] == ZERO, ZERO, places[0] % size)
        expected = np.where(first == ZERO, ZERO, first + size * np.arange(source.samples)[:, None])
        if len(rows) != source.samples or not np.array_equal(places, expected):
            raise misplaced(f"its input {list(view.shape)} mixes samples of a batch: each row must hold one sample")
        return source, first

    def flat(self, view: View) -> View:
        """The same tensor as elements of a vector: of a flattened image, or of the last time step of a sequence."""
        self._decide(view.source, Form.VECTOR, view.numbers)
        source, places = view.source, view.places
        if source.form is Form.VECTOR:
            return View(source=source, numbers=places)
        if source.form is Form.IMAGE:
            made = self._derive(source, Op.FLATTEN, "flat", (int(np.prod(source.shape)),))
            return View(source=made, numbers=places)
        if source.mixed or not _at_end(source, places):
            raise misplaced(
                "it reads other time steps of a sequence than the last one" + (
                    ", or of the backward direction another one than its own last, the first in time"
                    if source.backward or source.mixed else ""),
                "let it read the last hidden vectors (h_n in PyTorch), or every time step alone")
        time, size = source.shape
        numbers = np.where(places == ZERO, ZERO, places // (time * size) * size + places % size)
        return View(source=self._derive(source, Op.LAST, "last", (size,)), numbers=numbers.astype(np.int32))

    def _derive(self, source: Source, op: Op, ending: str, shape: tuple[int, ...]) -> Source:
        """The only node of this operation behind a source."""
        key = (source.name, op)
        if key not in self._derived:
            made = counting(self._unique(f"{source.name or 'input'}_{ending}"), Form.VECTOR, source.samples, shape,
                            guessed=source.guessed)
            self.nodes.append(Node(name=made.name, op=op, sources=(source.name,)))
            self._derived[key] = made
        return self._derived[key]

    def _decide(self, source: Source, form: Form, order: np.ndarray):
        """Give the input its form, if it has none."""
        if source.form is not Form.OPEN:
            return
        if form is Form.VECTOR:
            order = source.order.reshape(source.samples, -1)
        elif order.size != source.order.size or order.min() < 0 or np.bincount(order.reshape(-1)).max() > 1:
            raise misplaced("it reads a part of the network's input", "give the network only what it reads")
        elif axes(order) is None:
            raise misplaced("it reads the network's input in an order that is no order of axes")
        decided = Source(name=INPUT, form=form, order=order, guessed=source.guessed)
        if self._touched:
            raise Decided(decided)
        source.form, source.order = form, order

    def _unique(self, name: str) -> str:
        unique, number = name, 1
        while unique in self._names:
            number += 1
            unique = f"{name}_{number}"
        self._names.add(unique)
        return unique


def _unpadded(numbers: np.ndarray) -> tuple[np.ndarray, tuple[int, int, int, int]]:
    """The image inside its zeros, and how many rows and columns of zeros are around it."""
    filled = (numbers != ZERO).any(axis=(0, 1))
    rows, columns = np.flatnonzero(filled.any(axis=1)), np.flatnonzero(filled.any(axis=0))
    if not len(rows) or numbers.min() != ZERO:
        return numbers, (0, 0, 0, 0)
    (top, bottom), (left, right) = ((int(found[0]), int(found[-1]) + 1) for found in (rows, columns))
    around = (top, numbers.shape[2] - bottom, left, numbers.shape[3] - right)
    return numbers[:, :, top:bottom, left:right], around


def _equal(source: Source, numbers: np.ndarray, form: Form) -> bool:
    return source.form is form and source.order.shape == numbers.shape and np.array_equal(source.order, numbers)


def _hint(source: Source) -> str:
    names = {Form.VECTOR: "; what comes before it gives a vector", Form.SEQUENCE: "; what comes before it gives a "
             "sequence"}
    return names.get(source.form, "")


def _at_end(source: Source, places: np.ndarray) -> bool:
    """Whether places lie in the last time step, those of the backward direction in the first one."""
    time, size = source.shape
    used = places[places != ZERO]
    step, element = used // size % time, used % size
    return bool(np.array_equal(step, np.where(element < size - source.backward, time - 1, 0)))


def check_not_padded(view: View):
    """Refuse zeros that the file has put around a tensor, where they would be computed with."""
    if view.numbers.size and view.numbers.min() == ZERO:
        raise Refused("it computes with zeros that a Pad has put around its input",
                      "put the Pad directly before the convolution or pooling that needs it")
