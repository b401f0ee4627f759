"""The outputs of a network, as text and as a file."""

import csv
import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from concord.datasets.measures import classified, measure, scored, scores, text
from concord.datasets.samples import UNLABELLED, Samples, Task
from concord.lib.files import write_all
from concord.lib.several import Results, apart, columns

SHOWN = 32  #: Most outputs of a sample in a line.


def real(outputs: np.ndarray) -> np.ndarray:
    """float64 numbers of binary16 patterns uint16[...]; real numbers as they are."""
    outputs = np.asarray(outputs)
    if outputs.dtype.kind == "f":
        return outputs
    return np.asarray(outputs, np.uint16).view(np.float16).astype(np.float64)


def lines(
    index: int, outputs: np.ndarray, classes: Sequence[str], samples: Samples, row: int,
    task: Task = Task.CLASSIFICATION, several: Results = (), *, probable: bool = False,
) -> list[str]:
    """A line about one sample, or one for each of its several outputs, which begins with its name; see `line`.

    Args:
        several: Names and sizes of several outputs.
        Others:  As in `line`.
    """
    if not several:
        return [line(index, outputs, classes, samples, row, task, probable=probable)]
    one = samples.part(slice(row, row + 1))
    targets = {} if one.labels is None else apart(one.labels, several)
    return [f"{name}, {line(index, part, (), replace(one, labels=targets.get(name)), 0, task)}"
            for name, part in apart(outputs, several).items()]


def line(
    index: int, outputs: np.ndarray, classes: Sequence[str], samples: Samples, row: int,
    task: Task = Task.CLASSIFICATION, *, probable: bool = False,
) -> str:
    """A line about one sample: what the network says, and the label if that differs.

    Args:
        index:   Index of the sample in its source.
        outputs: Outputs of the network, uint16[outputs].
        classes: Names of the outputs; may be empty.
        samples: The samples of this run.
        row:     Index of the sample in `samples`.
        task:    What the network does. Where it classifies without names of classes, its largest output is told.
        probable: Whether the outputs are probabilities of classes; that of the class is told, too.
    """
    label = None if samples.labels is None else samples.labels[row]
    if task is Task.REGRESSION:
        return f"{index}: {values(outputs)}" + ("" if label is None else f" (is {_listed(label)})")
    if task is Task.ANOMALY and scored(len(outputs), samples):
        score = scores(real(outputs)[None], samples.part(slice(row, row + 1)))[0]
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
    """The outputs of a sample as text: the first ones, and how many more there are."""
    return _listed(real(outputs)) + ", which -o writes" * (len(outputs) > SHOWN)


def summary(results: np.ndarray, samples: Samples, task: Task = Task.CLASSIFICATION) -> str:
    """A sentence about the measures of the task, such as the share of right answers; without labels, their number.

    Args:
        results: Outputs of the network, uint16[samples, outputs].
        samples: The samples.
        task:    What the network does.
    """
    found = measure(task, real(results), samples)
    if not found or samples.labels is None:
        return f"{len(results)} samples"
    if task is Task.CLASSIFICATION and not np.isnan(found["accuracy"]):
        count = f"{(samples.labels != UNLABELLED).sum():,} time steps or pixels" if samples.steps > 1 else len(results)
        return f"{found['accuracy']:.2%} of {count} right"
    return f"{described(found)} of {len(results)} samples"


def described(measures: Mapping[str, float]) -> str:
    """Measures by name, as text."""
    return ", ".join(f"{name} {text(name, value)}" for name, value in measures.items())


def write_outputs(path: Path, outputs: np.ndarray, classes: Sequence[str], samples: Samples, first: int,
                  several: Results = ()):
    """Write the outputs uint16[samples, outputs] as binary16; real numbers as float64.

    The ending decides the form: .npz has an array for each output by its name, `output` where there is only one; .csv a
    line for each sample, with a column for each element; all other names become a .npy array of all. Where each time
    step has a class, arrays are [samples, classes, time steps].

    Args:
        path:    The file.
        outputs: The outputs of all samples.
        classes: Names of the outputs; may be empty.
        samples: The samples of this run.
        first:   Index of the first of them in their source.
        several: Names and sizes of several outputs.
    """
    numbers = outputs.view(np.float16) if outputs.dtype == np.uint16 else outputs
    steps = _steps(numbers[0], classes, samples)
    arrays = numbers.reshape(len(numbers), -1, steps) if steps > 1 else numbers
    binary, text = io.BytesIO(), io.StringIO()
    if path.suffix.lower() == ".csv":
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(["sample", *columns(several, numbers.shape[1])])
        rows.writerows([first + row, *values] for row, values in enumerate(numbers.tolist()))
    elif path.suffix.lower() == ".npz":
        with zipfile.ZipFile(binary, "w") as archive:  # not `np.savez`: an output may be called `file`, as its argument
            for name, array in (apart(numbers, several) or {"output": arrays}).items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array)
    else:
        np.save(binary, arrays)
    write_all(path.parent, {path.name: text.getvalue() or binary.getvalue()})


def _class(classes: Sequence[str], index: int) -> str:
    return classes[index] if index < len(classes) else f"class {index}"


def _listed(numbers: np.ndarray) -> str:
    more = f" and {len(numbers) - SHOWN:,} more" if len(numbers) > SHOWN else ""
    return " ".join(f"{value:.4g}" for value in numbers[:SHOWN]) + more
