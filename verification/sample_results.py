"""Results of each sample: answers, values that differ, and the confusion matrix."""

import csv
import io
from dataclasses import dataclass

import numpy as np
from concord.datasets.measures import classified, measure, measure_predictions, scored, scores
from concord.datasets.samples import UNLABELLED, Samples, Task
from concord.lib.several import columns as columns_of
from concord.net import network
from concord.net.float_network import float_network
from concord.net.model import Model
from concord.net.network import errors
from concord.verification.inputs import Inputs
from concord.verification.verified import Verified
from concord.workflows.results import real

#: Most classes of a confusion matrix.
CLASSES = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class DifferingValue:
    """An output that differs between golden and the machine.

    Attributes:
        sample: Index of the sample in the test set.
        output: Index of the output.
        golden: Value in golden.
        other:  Value on the machine.
        bits:   Bit patterns of both values, golden's first.
    """

    sample: int
    output: int
    golden: float
    other: float
    bits: tuple[int, int]


def confusion(verified: Verified) -> np.ndarray:
    """int[classes, classes]: samples of each class (row) by the class that the machine gave (column).

    It is empty if the labels are not known or are no classes, or if there are more than `CLASSES`.
    """
    none = np.zeros((0, 0), int)
    if verified.samples.labels is None or verified.task is not Task.CLASSIFICATION:
        return none
    labels, found = verified.samples.labels, _answers(verified, verified.other.outputs)
    if verified.samples.steps > 1:
        known = labels != UNLABELLED
        labels, found = labels[known], found[known]
    count = max(len(verified.samples.classes), int(max(labels.max(initial=0), found.max(initial=0))) + 1)
    if count > CLASSES:
        return none
    matrix = np.zeros((count, count), int)
    np.add.at(matrix, (labels, found), 1)
    return matrix


def class_names(verified: Verified) -> list[str]:
    """Names of the rows of the confusion matrix: the classes of the data set, or numbers."""
    names = list(verified.samples.classes)[:len(confusion(verified))]
    return names + [str(number) for number in range(len(names), len(confusion(verified)))]


def differing_values(verified: Verified) -> list[DifferingValue]:
    """All outputs that differ between golden and the machine."""
    golden, other = verified.golden.outputs, verified.other.outputs
    return [
        DifferingValue(
            sample=verified.first + row,
            output=column,
            golden=float(golden[row, column].view(np.float16)),
            other=float(other[row, column].view(np.float16)),
            bits=(int(golden[row, column]), int(other[row, column])),
        )
        for row, column in np.argwhere(golden != other).tolist()
    ]


def table(verified: Verified) -> str:
    """CSV text with a line for each sample: its label, the answers of each network, the bits that differ, the outputs.

    Columns of the label and of the float networks are there where these are known, that of the bits where another
    machine than golden ran.
    """
    golden, other = verified.golden.outputs, verified.other.outputs
    first, count = verified.first, len(golden)
    columns = {
        "sample": range(first, first + count),
        **ANSWERS[verified.task](verified),
        **({"differing bits": np.bitwise_count(golden ^ other).sum(axis=1)} if verified.compared else {}),
    }
    outputs = columns_of(verified.results, other.shape[1])  # an output may be called `target`, as the column of targets
    columns |= {f"output {name}" if name in columns else name: values
                for name, values in zip(outputs, other.view(np.float16).T, strict=True)}
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return stream.getvalue()


def _classes(verified: Verified) -> dict:
    """Columns of classes."""
    found = {
        **({} if verified.samples.labels is None else {"label": verified.samples.labels}),
        **{f"{name} class": kept for name, kept in _kept(verified).items()},
        "golden class": _answers(verified, verified.golden.outputs),
        "machine class": _answers(verified, verified.other.outputs),
    }
    return found if verified.samples.steps == 1 else {
        name: [" ".join(map(str, row)) for row in classes.tolist()] for name, classes in found.items()}


def _answers(verified: Verified, outputs: np.ndarray) -> np.ndarray:
    """int[samples], the class of each sample; or int[samples, time], that of each time step."""
    return classified(real(outputs), verified.samples.steps)


def _targets(verified: Verified) -> dict:
    """Columns of targets, and of the outputs of every other network."""
    labels = verified.samples.labels
    columns = {} if labels is None else _numbered("target", labels)
    for name, kept in _kept(verified).items():
        columns |= _numbered(name, kept)
    return columns | _numbered("golden", verified.golden.outputs.view(np.float16))


def _scores(verified: Verified) -> dict:
    """Columns of scores of anomalies."""
    if not scored(verified.other.outputs.shape[1], verified.samples):
        return {}
    made = {**_kept(verified), "golden": real(verified.golden.outputs), "machine": real(verified.other.outputs)}
    return {**({} if verified.samples.labels is None else {"anomaly": verified.samples.labels}),
            **{f"{name} score": scores(np.asarray(kept, np.float64), verified.samples) for name, kept in made.items()}}


def _kept(verified: Verified) -> dict[str, np.ndarray]:
    """What the model keeps of its float networks for these samples; empty if they are of another test set."""
    if verified.samples.labels is None or not verified.own:
        return {}
    first, count = verified.first, len(verified.samples)
    return {name: kept[first:first + count] for name, kept in verified.predictions.items() if len(kept)}


def _numbered(name: str, values: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of an array [samples, columns]."""
    return dict(zip((f"{name} {index}" for index in range(values.shape[1])), values.T, strict=True))


#: For each task, the columns of labels and answers.
ANSWERS = {Task.CLASSIFICATION: _classes, Task.REGRESSION: _targets, Task.ANOMALY: _scores, Task.NONE: lambda _: {}}


def measured(
    model: Model | None, given: Inputs, golden: np.ndarray, other: np.ndarray | None
) -> dict[str, dict[str, float]]:
    """Measures by the name of the network: FP32 and quantised, if the model keeps their predictions, golden and RTL.

    The result is empty if there are no labels.

    Args:
        model:  The model; None where there is only firmware.
        given:  The samples that were run.
        golden: Outputs of golden, uint16[samples, outputs].
        other:  Those of another machine, or None.
    """
    if given.samples.labels is None:
        return {}
    found = {name: measure_predictions(given.task, kept[given.chosen], given.samples)
             for name, kept in (model.predictions if model and given.own else {}).items()}
    found["golden"] = measure(given.task, real(golden), given.samples)
    if other is not None:
        found["RTL"] = measure(given.task, real(other), given.samples)
    return {name: measures for name, measures in found.items() if measures}


def layer_errors(model: Model, samples: Samples) -> dict[str, float]:
    """RMS error of each layer relative to the FP32 network, over the samples that are finite.

    The result is empty if the model file has no FP32 network, or no sample is finite.
    """
    finite = np.asarray(np.isfinite(samples.inputs.view(np.float16)).reshape(len(samples), -1).all(axis=1))
    if not finite.any() or float_network(model) is None:
        return {}
    samples = samples.part(finite)
    traces = network.forward(model, samples.inputs, samples.lengths)
    found = errors(model, traces, samples.inputs, samples.lengths)
    return {layer.name: error for layer, error in zip(model.layers, found, strict=True)}
