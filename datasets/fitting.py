"""Data in the form that a network takes: the order of the axes of a sample, sequences, and the numbers of classes."""

import tomllib
from dataclasses import replace
from math import prod

import numpy as np
import tomli_w
from concord.datasets.dataset import names
from concord.datasets.description import ORIGIN
from concord.datasets.embedding import arrayed, looked_up, vectors
from concord.datasets.interface import Interface
from concord.datasets.read import digest
from concord.datasets.samples import UNLABELLED, DataSet, Samples, Task
from concord.lib.input_axes import Order, words
from concord.lib.several import listed


def fitted(data: DataSet, takes: Interface, location: str = "") -> DataSet:
    """A data set whose samples lie as the machine reads them, and whose classes are numbered as the outputs are.

    Args:
        data:     The data set.
        takes:    What the network takes and gives.
        location: Where the data come from, for messages; by default the name of the data set.

    Raises:
        ValueError: the data do not fit the network.
    """
    location, data = location or data.name, looked_up(data, takes)
    if data.refused:
        raise ValueError(data.refused)
    if takes.table is not None and not takes.sequence and data.shape != takes.axes.file and (
            prod(data.shape) * takes.table.shape[1] == prod(takes.axes.file)):
        raise ValueError(f"{location}: a sample is {words(data.shape)}, as many as {takes.name} takes token numbers, "
                         "but not of integers: write them as int64")
    if takes.sequence:
        data = data.as_sequences(prod(takes.axes.shape))
    elif data.sequence:
        raise ValueError(f"{location}: the samples are sequences, but {takes.name} takes {words(takes.axes.file)}; "
                         "give samples of one length as such arrays, without lengths")
    if takes.results and data.task in (Task.CLASSIFICATION, Task.ANOMALY):
        raise ValueError(f"{location}: its labels are those of one output, but {takes.name} has several, "
                         f"{listed(takes.results)}: import one of them by --output NAME, or write `task = \"none\"` in "
                         "a TOML file that describes the data")
    if data.task is Task.CLASSIFICATION:
        data = relabelled(data, takes, location)
    index, note = _indices(takes, data.shape, location, data.order, data.image)
    parts = {name: part and replace(part, inputs=_reordered(part.inputs, index), raw=None)
             for name, part in data.parts().items()}
    return replace(data, shape=takes.axes.shape, order=Order.MACHINE, notes=(*data.notes, *note), **parts)


def arranged(array: np.ndarray, takes: Interface, location: str, order: Order = Order.FILE
             ) -> tuple[np.ndarray, tuple[str, ...]]:
    """Numbers [samples, inputs] or [samples, steps, inputs] as the machine reads them, and a note on their order.

    Args:
        array:    Numbers [samples, ...], or [samples, steps, ...] where the network takes sequences; or token numbers
            [samples, steps] where it begins with an embedding.
        takes:    What the network takes.
        location: Where they come from, for messages.
        order:    Order of the axes of a sample.

    Raises:
        ValueError: the numbers do not fit the network.
    """
    axes, wanted = (2 if takes.sequence else 1), prod(takes.axes.shape)
    if (tokens := arrayed(array, takes, location)) is not None:
        array, order = vectors(tokens, takes), Order.FILE
        array = array.reshape(*array.shape[:axes], *takes.axes.file)
    if array.ndim <= axes or prod(array.shape[axes:]) != wanted:
        before = ["samples", *[takes.steps or "steps"] * takes.sequence]
        shape = takes.axes.shape if order is Order.MACHINE else takes.axes.file
        raise ValueError(f"{location}: {takes.name} takes numbers[{', '.join(map(str, (*before, *shape)))}], not "
                         f"{array.dtype}{list(array.shape)}")
    index, note = _indices(takes, array.shape[axes:], location, order, None)
    return _reordered(array.reshape(*array.shape[:axes], wanted), index), note


def relabelled(data: DataSet, takes: Interface, location: str) -> DataSet:
    """A data set whose classes are numbered as the outputs of a network.

    Texts as labels find the output of this name. Integers are the numbers of the outputs, or the network's own classes
    where those are other integers.

    Raises:
        ValueError: a class is none of the network's, or texts occur that cannot be told to be all classes.
    """
    steps = max((part.steps for part in data.parts().values() if part is not None), default=1)
    outputs = takes.outputs // steps if takes.outputs % steps == 0 else takes.outputs
    mine = takes.classes if len(takes.classes) == outputs and takes.classes != names(outputs) else ()
    theirs = data.classes if data.classes != names(len(data.classes)) else ()
    counted = mine == tuple(map(str, range(outputs)))
    if theirs and data.sorted_classes and not mine and len(theirs) != outputs:
        raise ValueError(f"{location}: the labels are {len(theirs)} texts, {_listed(theirs)}, but {takes.name} has "
                         f"{outputs} outputs{' for each time step or pixel' * (steps > 1)}, whose classes are not "
                         "known; write all of them in the order of the outputs, as `classes = [...]` in a TOML file "
                         "that describes the data")
    if theirs and data.sorted_classes and not mine:
        first = ", ".join(f"{name} = {number}" for number, name in enumerate(theirs[:3])) + ", ..." * (len(theirs) > 3)
        note = (f"{location}: the labels are texts, numbered in alphabetic order: {first}; `classes` in a TOML file "
                "names them in the order of the outputs")
        return replace(data, notes=(*data.notes, note), sorted_classes=False)
    if not mine or theirs == mine[:len(theirs)] and (theirs or counted) or counted and not data.sorted_classes:
        return data
    if theirs and not data.sorted_classes:
        raise ValueError(f"{location}: its classes are {_listed(theirs)}, those of {takes.name} {_listed(mine)}; give "
                         "`classes` in this order in a TOML file")
    if not theirs and not all(name.removeprefix("-").isdecimal() for name in mine):
        return data
    found = [name if theirs else str(number) for number, name in enumerate(data.classes)]
    used = {int(label) for part in data.parts().values() if part is not None and part.labels is not None
            for label in np.unique(part.labels) if label != UNLABELLED or part.steps == 1}
    numbers = {number: mine.index(name) if name in mine else -1 for number, name in enumerate(found)}
    if lost := [found[number] for number in sorted(used) if numbers[number] < 0]:
        raise ValueError(f"{location}: the label {lost[0]!r} is none of the classes of {takes.name}, {_listed(mine)}; "
                         "correct the labels, or write `classes` in the order of the outputs in a TOML file that "
                         "describes the data")
    table = np.array([numbers[number] for number in range(len(found))])
    parts = {name: part and _renumbered(part, table, mine) for name, part in data.parts().items()}
    return replace(data, description=_described(data.description, mine, parts.get("test")), **parts)


def _indices(takes: Interface, given: tuple[int, ...], location: str, order: Order, image: bool | None
            ) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """The indices of a sample's numbers, see `InputAxes.indices`, or None where nothing moves; and a note on the order.

    Arguments are those of `InputAxes.indices`, but `image` is None for an array that no TOML file can describe.

    Raises:
        ValueError: a sample has another shape than the network takes.
    """
    try:
        index = takes.axes.indices(given, order, bool(image))
    except ValueError as error:
        what = "a time step" if takes.sequence else "a sample"
        raise ValueError(f"{location}: {what} is {words(given)}, but {takes.name} {error}"
                         f"{takes.axes.advice(given, order, image)}") from error
    note = takes.axes.note(given, order, bool(image))
    moves = not np.array_equal(index, np.arange(len(index)))
    return index if moves else None, (f"{location}: {note}",) if note else ()


def _reordered(inputs: np.ndarray, index: np.ndarray | None) -> np.ndarray:
    return inputs if index is None else np.ascontiguousarray(inputs[..., index])


def _renumbered(part: Samples, table: np.ndarray, classes: tuple[str, ...]) -> Samples:
    labels = part.labels
    if part.steps > 1:
        return replace(part, labels=np.where(labels == UNLABELLED, UNLABELLED, table[labels]).astype(np.int32),
                       classes=classes)
    kind = np.uint8 if len(classes) <= 256 else np.int32
    return replace(part, labels=None if labels is None else table[labels].astype(kind), classes=classes)


def _described(text: str, classes: tuple[str, ...], test: Samples | None) -> str:
    """A description of data with these classes, and the digest of the test set with new numbers."""
    try:
        record = tomllib.loads(text)
    except tomllib.TOMLDecodeError:  # a function of the user made the data
        return text
    if test is not None and ORIGIN in record:
        record[ORIGIN]["test_digest"] = digest(test)
    return tomli_w.dumps(record | {"classes": list(classes)})


def _listed(classes: tuple[str, ...]) -> str:
    """Names of classes as text; of many, only the first few."""
    return ", ".join(classes[:10]) + (f" and {len(classes) - 10} more" if len(classes) > 10 else "")
