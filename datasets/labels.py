"""Labels of a data set: classes, real numbers, or marks of anomalies."""

from collections.abc import Mapping

import numpy as np
from concord.datasets import dataset
from concord.datasets.raw import Raw
from concord.datasets.samples import UNLABELLED, Task
from concord.lib.names import cleaned

#: Most classes of a data set.
CLASSES = 65_536
#: Integers that are names of two classes, as scikit-learn has them.
SIGNS = {-1, 1}


def task_of(parts: Mapping[str, Raw]) -> Task:
    """The task that labels are usually for: texts, integers and one-hot rows are classes, other numbers targets.

    Integers or texts for each time step of sequences, or each pixel of images, are classes, too.
    """
    found = [raw.labels for raw in parts.values() if raw.labels is not None]
    if not found:
        return Task.NONE
    if all(labels.dtype.kind in "biuSU" and labels.ndim == 1 or _one_hot(labels) for labels in map(_squeezed, found)):
        return Task.CLASSIFICATION
    if all(_of_positions(raw, raw.labels) and raw.labels.dtype.kind in "biuSU"
           for raw in parts.values() if raw.labels is not None):
        return Task.CLASSIFICATION
    return Task.REGRESSION


def labelled(
    parts: Mapping[str, Raw], task: Task, names: tuple[str, ...], given: bool
) -> tuple[dict[str, np.ndarray | None], tuple[str, ...]]:
    """Labels of each part as `Samples` has them, and the names of the classes.

    Args:
        parts: The samples by part.
        task:  What the labels are for.
        names: Names of the classes, or empty.
        given: Whether `names` are those of a description, so that no other class may occur.

    Raises:
        ValueError: a label is missing, out of range, or not finite.
    """
    if task is Task.NONE:
        return dict.fromkeys(parts), ()
    for part, raw in parts.items():
        if raw.labels is None and part != "calibration" and (task, part) != (Task.ANOMALY, "train"):
            raise ValueError(f"{raw.location}: {task} needs labels, and the part {part} has none; name them as "
                             "`labels`, or say `task = \"none\"`")
    present = {part: (raw, raw.labels) for part, raw in parts.items() if raw.labels is not None}
    labels = dict.fromkeys(parts)
    if task is Task.REGRESSION:
        return labels | {part: _targets(*found) for part, found in present.items()}, names
    if task is Task.ANOMALY:
        made, names = _classes(present, names if given else ("normal", "anomaly"), True)
        return labels | made, names
    made, names = _classes(present, names, given)
    return labels | made, names


def _classes(
    parts: Mapping[str, tuple[Raw, np.ndarray]], names: tuple[str, ...], given: bool
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Classes of each part, and their names."""
    # decided for all parts: labels of time steps may have a single 1 in each sample of one part by chance
    hot = all(_one_hot(labels) for _, labels in parts.values())
    values = {part: _class_values(*found, hot) for part, found in parts.items()}
    if not names and all(found.ndim == 1 and found.dtype.kind == "i" for found in values.values()) and (
            set(np.concatenate(list(values.values())).tolist()) == SIGNS):
        values = {part: found.astype(str) for part, found in values.items()}
    elif given and not hot:
        values = _by_name(values, names)
    if any(found.dtype.kind == "U" for found in values.values()):
        names = names or tuple(sorted({str(text) for found in values.values() for text in np.unique(found)}))
        values = {part: _numbered(parts[part][0], found, names) for part, found in values.items()}
    for part, found in values.items():
        limit = len(names) if given else CLASSES
        for index in np.argwhere((found < (UNLABELLED if found.ndim > 1 else 0)) | (found >= limit))[:1]:
            raise ValueError(f"{_where(parts[part][0], index[0])}: label {found[tuple(index)]} is not one of the "
                             f"classes 0..{limit - 1}"
                             + f", or {UNLABELLED} for a time step or pixel without one" * (found.ndim > 1)
                             + ("" if given else "; for real numbers say `task = \"regression\"`"))
    count = max((int(found.max()) + 1 for found in values.values() if len(found)), default=0)
    names = (*names, *dataset.names(count)[len(names):])
    kind = np.uint8 if len(names) <= 256 else np.int32
    return {part: found.astype(kind if found.ndim == 1 else np.int32) for part, found in values.items()}, names


def _by_name(values: dict[str, np.ndarray], names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Integers as the indices of the names that they are, where each is a name: 1 is the first of the classes 1, 2, 3.

    A model has such names if its labels were not counted from 0.
    """
    if any(found.dtype.kind != "i" for found in values.values()):
        return values
    indices = {name: index for index, name in enumerate(names)}
    if any(found.ndim > 1 for found in values.values()):
        indices[str(UNLABELLED)] = UNLABELLED
    used = {part: np.unique(found, return_inverse=True) for part, found in values.items()}
    if not {str(number) for numbers, _ in used.values() for number in numbers.tolist()} <= indices.keys():
        return values
    return {part: np.array([indices[str(number)] for number in numbers.tolist()], np.int64)[index].reshape(
        values[part].shape) for part, (numbers, index) in used.items()}


def _class_values(raw: Raw, labels: np.ndarray, hot: bool = False) -> np.ndarray:
    """Classes as integers or texts, of [samples], or of [samples, positions]: time steps, or pixels row by row."""
    labels = _squeezed(labels)
    if hot:
        return labels.argmax(axis=1)
    tokens = raw.inputs.dtype.kind in "iu" and raw.inputs.shape == labels.shape  # one for each label
    if labels.ndim == 3 or labels.ndim == 2 and (tokens or _of_positions(raw, labels)):
        labels = labels.reshape(len(labels), -1)
        flat = np.repeat(np.arange(len(labels)), labels.shape[1])
        return _class_values(raw.part(flat), labels.reshape(-1)).reshape(labels.shape)
    if labels.ndim != 1:
        raise ValueError(f"{raw.location}: classes are one label for each sample, not labels {list(labels.shape)}; for "
                         "several real numbers say `task = \"regression\"`")
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8", "replace")
    if labels.dtype.kind == "f":
        for index in np.flatnonzero(~np.isfinite(labels) | (labels != np.trunc(labels)) | (abs(labels) > 2**31))[:1]:
            raise ValueError(f"{_where(raw, index)}: {labels[index]} is no class; for real numbers say "
                             "`task = \"regression\"`")
    if labels.dtype.kind == "U":
        texts, index = np.unique(labels, return_inverse=True)
        return np.array([cleaned(str(text)) for text in texts])[index]
    if labels.dtype.kind == "u":
        labels = np.minimum(labels.astype(np.uint64), 2**62)  # so that the largest ones do not become negative
    return labels.astype(np.int64)


def _numbered(raw: Raw, texts: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """The index of each text in `names`."""
    indices = {name: index for index, name in enumerate(names)}
    found = np.array([indices.get(str(text), -1) for text in texts.reshape(-1).tolist()], np.int64).reshape(texts.shape)
    for index in np.argwhere(found < 0)[:1]:
        raise ValueError(f"{_where(raw, index[0])}: {str(texts[tuple(index)])!r} is not one of the classes "
                         f"{', '.join(names[:20])}{', ...' if len(names) > 20 else ''}; correct it, or write "
                         "`classes` in a TOML file that describes the data")
    return found


def _targets(raw: Raw, labels: np.ndarray) -> np.ndarray:
    """float32[samples, outputs]."""
    if labels.dtype.kind not in "biuf":
        held = "texts" if labels.dtype.kind in "SU" else labels.dtype
        raise ValueError(f"{raw.location}: regression needs numbers as labels, not {held}")
    with np.errstate(over="ignore"):
        targets = labels.reshape(len(labels), -1).astype(np.float32)
    for index in np.flatnonzero(~np.isfinite(targets).all(axis=1))[:1]:
        raise ValueError(f"{_where(raw, index)}: its label is not finite: {targets[index].tolist()}")
    return targets


def _squeezed(labels: np.ndarray) -> np.ndarray:
    """Labels [samples] where they are [samples, 1] or [samples, 1, 1]."""
    return labels.reshape(-1) if labels.ndim > 1 and labels.size == len(labels) else labels


def _of_positions(raw: Raw, labels: np.ndarray) -> bool:
    """Whether each time step of sequences of vectors, or each pixel of images with channels, has a label."""
    labelled, inputs = labels.shape, raw.inputs.shape
    channels_first = len(labelled) == 3 and labelled == (*inputs[:1], *inputs[2:])
    return len(inputs) == len(labelled) + 1 in (3, 4) and (channels_first or labelled == inputs[:-1])


def _one_hot(labels: np.ndarray) -> bool:
    """Whether each row of labels is a single 1 among zeros."""
    if labels.ndim != 2 or labels.dtype.kind not in "biuf" or labels.shape[1] < 2:
        return False
    return bool(((labels == 0) | (labels == 1)).all() and (labels.sum(axis=1) == 1).all())


def _where(raw: Raw, index: int) -> str:
    return f"{raw.location}, {raw.sample(int(index))}"
