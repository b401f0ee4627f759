"""The outputs of a network, as text and as a file."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from concord.datasets.measures import classified, measure, scored, scores, text
from concord.datasets.samples import UNLABELLED, Samples, Task
from concord.lib.files import write_all


def real(outputs: np.ndarray) -> np.ndarray:
    """float64 numbers of binary16 patterns uint16[...]; real numbers as they are."""
    outputs = np.asarray(outputs)
    if outputs.dtype.kind == "f":
        return outputs
    return np.asarray(outputs, np.uint16).view(np.float16).astype(np.float64)


def line(
    index: int, outputs: np.ndarray, classes: Sequence[str], samples: Samples, place: int,
    task: Task = Task.CLASSIFICATION, *, probable: bool = False,
) -> str:
    """A line about one sample: what the network says, and the label if that differs.

    Args:
        index:   Index of the sample in its source.
        outputs: Outputs of the network, uint16[outputs].
        classes: Names of the outputs; may be empty.
        samples: The samples of this run.
        place:   Index of the sample in `samples`.
        task:    What the network does. Where it classifies without names of classes, its largest output is told.
        probable: Whether the outputs are probabilities of classes; that of the class is told, too.
    """
    label = None if samples.labels is None else samples.labels[place]
    if task is Task.REGRESSION:
        return f"{index}: {values(outputs)}" + ("" if label is None else f" (is {_listed(label)})")
    if task is Task.ANOMALY and scored(len(outputs), samples):
        score = scores(real(outputs)[None], samples.part(slice(place, place + 1)))[0]
        return f"{index}: score {score:.4g}" + (" (is an anomaly)" if label else "")
    if (steps := _steps(outputs, classes, samples)) > 1:
        kinds = classified(real(outputs)[None], steps)[0]
        said = "" if label is None else f" ({(kinds == label).sum()} of {(label != UNLABELLED).sum()} right)"
        return f"{index}: {' '.join(_class(classes, kind) for kind in kinds)}{said}"
    kind = int(real(outputs).argmax())
    if not classes:
        return f"{index}: output {kind} is the largest, {values(outputs[kind:kind + 1])}"
    wrong = label is not None and label != kind
    said = f", probability {values(outputs[kind:kind + 1])}" if probable else ""
    return f"{index}: {kind} {_class(classes, kind)}{said}" + (f" (is {_class(classes, label)})" if wrong else "")


def _steps(outputs: np.ndarray, classes: Sequence[str], samples: Samples) -> int:
    """Number of time steps that have a class each: by the labels, or by the number of outputs for each class."""
    if samples.labels is not None or len(classes) < 2 or len(outputs) % len(classes):
        return samples.steps
    return len(outputs) // len(classes)


def values(outputs: np.ndarray) -> str:
    """The outputs of a sample as text."""
    return " ".join(f"{value:.4g}" for value in real(outputs))


def summary(results: np.ndarray, samples: Samples, task: Task = Task.CLASSIFICATION) -> str:
    """A sentence about the measures of the task, such as the share of right answers; without labels, their number.

    Args:
        results: Outputs of the network, uint16[samples, outputs].
        samples: The samples.
        task:    What the network does.
    """
    found = measure(task, real(results), samples)
    if not found:
        return f"{len(results)} samples"
    if task is Task.CLASSIFICATION:
        count = f"{(samples.labels != UNLABELLED).sum():,} time steps or pixels" if samples.steps > 1 else len(results)
        return f"{found['accuracy']:.2%} of {count} right"
    return f"{described(found)} of {len(results)} samples"


def described(measures: dict[str, float]) -> str:
    """Measures by name, as text."""
    return ", ".join(f"{name} {text(name, value)}" for name, value in measures.items())


def apart(outputs: np.ndarray, results: Sequence[tuple[str, int]]) -> dict[str, np.ndarray]:
    """Each of several outputs [..., size] by its name, from the whole vector [..., outputs]; none of a single one."""
    if not results:
        return {}
    ends = np.cumsum([size for _, size in results])
    return dict(zip((name for name, _ in results), np.split(outputs, ends[:-1], axis=-1), strict=True))


def write_arrays(path: Path, results: Mapping[str, np.ndarray]):
    """Write several outputs, uint16[samples, size] each, as a .npz file with an array of binary16 for each of them."""
    stream = io.BytesIO()
    np.savez(stream, **{name: values.view(np.float16) for name, values in results.items()})
    write_all(path.parent, {path.name: stream.getvalue()})


def write_outputs(path: Path, results: np.ndarray, classes: Sequence[str], samples: Samples):
    """Write the outputs uint16[samples, outputs] as a .npy file of binary16; real numbers as float64.

    Where each time step has a class, they are [samples, classes, time steps].
    """
    if (steps := _steps(results[0], classes, samples)) > 1:
        results = results.reshape(len(results), -1, steps)
    stream = io.BytesIO()
    np.save(stream, results.view(np.float16) if results.dtype == np.uint16 else results)
    write_all(path.parent, {path.name: stream.getvalue()})


def _class(classes: Sequence[str], index: int) -> str:
    return classes[index] if index < len(classes) else f"class {index}"


def _listed(label: np.ndarray) -> str:
    return " ".join(f"{value:.4g}" for value in label)
