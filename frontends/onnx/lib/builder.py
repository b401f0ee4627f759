"""Collects the nodes of a float network, and finds what form a tensor of a file has."""

from dataclasses import dataclass

import numpy as np
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.selection import bordered, elements, same_order, selection
from concord.frontends.onnx.lib.step import FileNode, misplaced
from concord.frontends.onnx.lib.views import ZERO, SampleForm, View, ViewSource, as_file, axes, counting, steps_in_image
from concord.net.graph import INPUT, Node
from concord.net.ops.grid import IntegerGrid
from concord.net.ops.operator import Operator
from concord.net.ops.reshape import Flatten
from concord.net.ops.sequences import Last, ToImage, ToSequence


class Decided(Exception):
    """The form of the input became known after nodes had been made of it: conversion starts again with this form."""

    def __init__(self, source: ViewSource):
        super().__init__()
        self.source = source


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ReadImage:
    """An image that a node reads.

    Attributes:
        source:  What gives it.
        padding: Zeros above, below, left and right that the file puts around it.
    """

    source: ViewSource
    padding: tuple[int, int, int, int]


class Builder:
    """The nodes that are made.

    Args:
        source: The network's input.
    """

    def __init__(self, source: ViewSource):
        self.input = source
        self.nodes: list[Node] = []
        self.notes: list[str] = []
        #: Names of tensors that hold results of nodes, where a node of the file gives more than these.
        self.tensors: dict[str, str] = {}
        #: The input, and the results of nodes, by their names.
        self.sources: dict[str, ViewSource] = {source.name: source}
        #: Integers of constants by the names of their tensors: a scale and a zero point for each element.
        self.grids: dict[str, IntegerGrid] = {}
        #: Softmaxes of which the network goes on, by the names of the tensors that they give.
        self.softmaxes: dict[tuple[str, ...], View] = {}
        self._names: set[str] = set()
        self._derived: dict[tuple[str, str, bytes], ViewSource] = {}
        self._touched = False

    def add(self, step: FileNode, op: Operator, sources: list[ViewSource], form: SampleForm, shape: tuple[int, ...],
            **fields
            ) -> ViewSource:
        """Add a node; its result has the form and the shape of one sample."""
        made = counting(self._unique(step.label()), form, sources[0].samples, shape,
                        guessed=any(source.guessed for source in sources),
                        open_time=any(source.open_time for source in sources) and form is SampleForm.SEQUENCE, **fields)
        self._touched |= any(source.form is SampleForm.OPEN and not source.guessed for source in sources)
        self.nodes.append(Node(name=made.name, op=op, sources=tuple(source.name for source in sources)))
        self.sources[made.name] = made
        return made

    def same(self, step: FileNode, op: Operator, view: View) -> View:
        """Add a node that computes element by element, and the view of its result that lies as `view` does."""
        source = view.source
        made = self.add(step, op, [source], source.form, source.shape, backward=source.backward, mixed=source.mixed)
        return View(source=made, numbers=view.indices)

    def note(self, text: str):
        """Keep a sentence on what is left to the host."""
        if text not in self.notes:
            self.notes.append(text)

    def forget(self, name: str):
        """Take back the sentences on a node, which is no longer left to the host."""
        self.notes[:] = [note for note in self.notes if not note.startswith(f"{name}: ")]

    def maker(self, source: ViewSource) -> Node | None:
        """The node that gives a result, or None for the input."""
        return next((node for node in reversed(self.nodes) if node.name == source.name), None)

    def placeholder(self, step: FileNode) -> str:
        """A name for the result of a refused node."""
        return self._unique(step.label())

    def image(self, view: View) -> ReadImage:
        """The image that a tensor [samples, channels, columns] or [samples, channels, rows, columns] holds."""
        if view.numbers.ndim not in (3, 4):
            raise misplaced(f"it needs an image, but its input has the shape {list(view.shape)}")
        if view.source.form is SampleForm.SEQUENCE:
            view = self.image_of_steps(view)
        numbers = view.numbers[:, :, None] if view.numbers.ndim == 3 else view.numbers
        inner, padding = _unpadded(numbers)
        if (part := self._part(view.source, inner)) is not None:
            return ReadImage(source=part, padding=padding)
        self._decide(view.source, SampleForm.IMAGE, inner)
        if not _equal(view.source, inner, SampleForm.IMAGE):
            raise misplaced(f"its input {list(view.shape)} is not an image as it is computed, with the channels on the "
                            f"second axis, but a part of it, or in another order{_hint(view.source)}")
        return ReadImage(source=view.source, padding=padding)

    def _part(self, source: ViewSource, numbers: np.ndarray) -> ViewSource | None:
        """A convolution whose result is a part of an image; None for a whole one, and for what is none."""
        whole = source.order[:, :, None] if source.order.ndim == 3 else source.order
        if source.form is SampleForm.OPEN:
            if whole.ndim != 4 or numbers.size == whole.size and axes(numbers) is not None:
                return None
        elif source.form is not SampleForm.IMAGE or np.array_equal(whole, numbers):
            return None
        indices = numbers if source.form is SampleForm.OPEN else source.in_c_order(numbers)
        op = selection(whole.shape[1:], indices)
        if op is None:
            return None
        self._decide(source, SampleForm.IMAGE, whole)
        shape = (op.outputs, *op.window.counts(*whole.shape[2:]))
        return self._derive(source, op, "part", shape, SampleForm.IMAGE,
                            key=repr(op.window).encode() + op.weight.tobytes())

    def own(self, view: View) -> View:
        """The same tensor as all that a layer gives, in its order; the tensor itself where no layer gives that."""
        try:
            return self._own(view)
        except Refused:
            return view

    def _own(self, view: View) -> View:
        source = view.source
        if source.form is SampleForm.IMAGE and view.numbers.ndim in (3, 4):
            image = self.image(view)
            source = image.source
            if any(image.padding):
                channels, rows, columns = source.shape
                above, below, left, right = image.padding
                source = self._derive(
                    source, bordered(channels, image.padding), "bordered",
                    (channels, above + rows + below, left + columns + right), SampleForm.IMAGE,
                    key=repr(image.padding).encode())
            return as_file(source, view.numbers.ndim - 2)
        if source.form is SampleForm.VECTOR and view.numbers.ndim == 2:
            source, indices = self.vector(view)
            made = self._derive(source, elements(indices, source.shape[0]), "part", (len(indices),),
                                key=indices.tobytes())
            return View(source=made, numbers=made.order)
        if source.form is SampleForm.SEQUENCE and view.numbers.ndim == 3:
            time, size = source.shape
            moment, indices = same_order(view.indices, size)
            made = self._derive(source, elements(indices, size), "part", (time, len(indices)), SampleForm.SEQUENCE,
                                key=indices.tobytes())
            numbers = moment[..., None] * len(indices) + np.arange(len(indices))
            return View(source=made, numbers=numbers.astype(np.int32))
        return view

    def image_of_steps(self, view: View) -> View:
        """A tensor of elements of a sequence as one of the image whose columns are the time steps."""
        source = view.source
        if source.open_time:
            raise Refused("it reads a sequence as an image, and the file leaves the number of time steps open",
                          "export the network with a fixed number of time steps, or give the sizes by --shape")
        time, size = source.shape
        made = self._derive(source, ToImage(steps=time), "image", (size, 1, time), SampleForm.IMAGE)
        sample, step, element = np.unravel_index(np.maximum(view.indices, 0), source.order.shape)
        indices = (sample * size + element) * time + step
        return View(source=made, numbers=np.where(view.indices == ZERO, ZERO, indices).astype(np.int32))

    def sequence(self, view: View) -> tuple[ViewSource, np.ndarray]:
        """The sequence that a tensor [samples, time, elements] holds.

        Returns:
            What gives the sequence, and int[elements]: where each element lies in the vector of a time step.
        """
        source = view.source
        if source.form is SampleForm.SEQUENCE:
            if view.shape == source.order.shape and np.array_equal(view.numbers, source.order):
                return source, np.arange(view.shape[2])
            raise misplaced(f"its input {list(view.shape)} does not hold whole sequences as [samples, time, features]",
                            "check batch_first, and which axis is time")
        found = steps_in_image(source.shape, view.indices) if source.form is SampleForm.IMAGE else None
        if found is None:
            raise misplaced("it reads an image, a vector, or a part of one as a sequence, and time is no axis of it",
                            "give sequences to the network's input, or let time be the columns or rows of an image")
        time, indices = found
        steps, size = view.shape[1:]
        return self._derive(source, ToSequence(time=time), "sequence", (steps, size), SampleForm.SEQUENCE), indices

    def vector(self, view: View) -> tuple[ViewSource, np.ndarray]:
        """The vector whose elements a tensor [samples, ...] holds.

        Returns:
            What gives the vector, and int[elements of a row]: where each lies in the vector, or ZERO.
        """
        rows = view.numbers.reshape(len(view.numbers), -1) if view.numbers.ndim > 1 else view.numbers[None]
        flat = self.flat(view.at(rows))
        source, indices = flat.source, flat.numbers
        size = source.shape[0]
        first = np.where(indices[0] == ZERO, ZERO, indices[0] % size)
        expected = np.where(first == ZERO, ZERO, first + size * np.arange(source.samples)[:, None])
        if len(rows) != source.samples or not np.array_equal(indices, expected):
            raise misplaced(f"its input {list(view.shape)} mixes samples of a batch: each row must hold one sample")
        return source, first

    def flat(self, view: View) -> View:
        """The same tensor as elements of a vector: of a flattened image, or of the last time step of a sequence."""
        self._decide(view.source, SampleForm.VECTOR, view.numbers)
        source, indices = view.source, view.indices
        if source.form is SampleForm.VECTOR:
            return View(source=source, numbers=indices)
        if source.form is SampleForm.IMAGE:
            made = self._derive(source, Flatten(), "flat", (int(np.prod(source.shape)),))
            return View(source=made, numbers=indices)
        if (source.mixed or not _at_end(source, indices)) and not source.open_time:
            return self.flat(self.image_of_steps(view))
        if source.mixed or not _at_end(source, indices):
            raise misplaced(
                "it reads other time steps of a sequence than the last one" + (
                    ", or of the backward direction another one than its own last, the first in time"
                    if source.backward or source.mixed else ""),
                "let it read the last hidden vectors (h_n in PyTorch), or every time step alone")
        time, size = source.shape
        numbers = np.where(indices == ZERO, ZERO, indices // (time * size) * size + indices % size)
        made = self._derive(source, Last(backward=source.backward), "last", (size,))
        return View(source=made, numbers=numbers.astype(np.int32))

    def _derive(self, source: ViewSource, op: Operator, ending: str, shape: tuple[int, ...],
                form: SampleForm = SampleForm.VECTOR, key: bytes = b""
                ) -> ViewSource:
        """The only node of this operator, or of this key, that reads a source."""
        key = (source.name, op.kind, key)
        if key not in self._derived:
            made = counting(self._unique(f"{source.name or 'input'}_{ending}"), form, source.samples, shape,
                            guessed=source.guessed, mixed=form is SampleForm.SEQUENCE and (
                                source.backward > 0 or source.mixed),
                            open_time=form is SampleForm.SEQUENCE and source.open_time)
            self.nodes.append(Node(name=made.name, op=op, sources=(source.name,)))
            self._derived[key] = self.sources[made.name] = made
        return self._derived[key]

    def _decide(self, source: ViewSource, form: SampleForm, order: np.ndarray):
        """Give the input its form, if it has none."""
        if source.form is not SampleForm.OPEN:
            return
        if form is SampleForm.VECTOR:
            order = source.order.reshape(source.samples, -1)
        elif order.size != source.order.size or order.min() < 0 or np.bincount(order.reshape(-1)).max() > 1:
            raise misplaced("it reads a part of the network's input", "give the network only what it reads")
        elif axes(order) is None:
            raise misplaced("it reads the network's input in an order that is no order of axes")
        decided = ViewSource(name=INPUT, form=form, order=order, guessed=source.guessed)
        if self._touched and not source.guessed:
            raise Decided(decided)
        source.form, source.order = form, order

    def _unique(self, name: str) -> str:
        unique, number = name, 1
        while unique in self._names:
            number += 1
            unique = f"{name}_{number}"
        self._names.add(unique)
        return unique


def single(value) -> np.ndarray:
    """Trained numbers in float32, as operators have them."""
    return np.array(value, np.float32)


def _unpadded(numbers: np.ndarray) -> tuple[np.ndarray, tuple[int, int, int, int]]:
    """The image inside its zeros, and how many rows and columns of zeros are around it."""
    filled = (numbers != ZERO).any(axis=(0, 1))
    rows, columns = np.flatnonzero(filled.any(axis=1)), np.flatnonzero(filled.any(axis=0))
    if not len(rows) or numbers.min() != ZERO:
        return numbers, (0, 0, 0, 0)
    (top, bottom), (left, right) = ((int(found[0]), int(found[-1]) + 1) for found in (rows, columns))
    around = (top, numbers.shape[2] - bottom, left, numbers.shape[3] - right)
    return numbers[:, :, top:bottom, left:right], around


def _equal(source: ViewSource, numbers: np.ndarray, form: SampleForm) -> bool:
    return source.form is form and source.order.shape == numbers.shape and np.array_equal(source.order, numbers)


def _hint(source: ViewSource) -> str:
    names = {SampleForm.VECTOR: "; what comes before it gives a vector",
             SampleForm.SEQUENCE: "; what comes before it gives a "
             "sequence"}
    return names.get(source.form, "")


def _at_end(source: ViewSource, indices: np.ndarray) -> bool:
    """Whether elements lie in the last time step, those of the backward direction in the first one."""
    time, size = source.shape
    used = indices[indices != ZERO]
    step, element = used // size % time, used % size
    return bool(np.array_equal(step, np.where(element < size - source.backward, time - 1, 0)))


def check_not_padded(view: View):
    """Refuse zeros that the file has put around a tensor, where they would be computed with."""
    if view.numbers.size and view.numbers.min() == ZERO:
        raise Refused("it computes with zeros that a Pad has put around its input",
                      "put the Pad directly before the convolution or pooling that needs it")
