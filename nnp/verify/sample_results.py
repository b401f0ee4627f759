"""Results of each sample: classes, values that differ, and the confusion matrix."""

import csv
import io
from dataclasses import dataclass

import numpy as np
from concord.model import network
from concord.nnp.verify.verification import Verified


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
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

    It is empty if the labels are not known.
    """
    if verified.samples.labels is None:
        return np.zeros((0, 0), int)
    labels, found = verified.samples.labels, network.classes(verified.other.outputs)
    count = max(len(verified.samples.classes), int(max(labels.max(), found.max())) + 1)
    matrix = np.zeros((count, count), int)
    np.add.at(matrix, (labels, found), 1)
    return matrix


def class_names(verified: Verified) -> list[str]:
    """Names of the rows of the confusion matrix: the classes of the data set, or numbers."""
    names = list(verified.samples.classes)
    return names + [str(number) for number in range(len(names), len(confusion(verified)))]


def differing_values(verified: Verified) -> list[Value]:
    """All outputs that differ between golden and the machine."""
    golden, other = verified.golden.outputs, verified.other.outputs
    return [
        Value(
            sample=verified.first + row,
            output=column,
            golden=float(golden[row, column].view(np.float16)),
            other=float(other[row, column].view(np.float16)),
            bits=(int(golden[row, column]), int(other[row, column])),
        )
        for row, column in np.argwhere(golden != other).tolist()
    ]


def table(verified: Verified) -> str:
    """CSV text with one line for each sample: its class in each arithmetic, the bits that differ, the outputs.

    If the labels are known, there are also columns for the label and the classes of the float networks.
    """
    golden, other, model = verified.golden.outputs, verified.other.outputs, verified.model
    first, count, labels = verified.first, len(golden), verified.samples.labels
    names = [f"output {index}" for index in range(other.shape[1])]
    columns = {
        "sample": range(first, first + count),
        **({} if labels is None else {
            "label": labels,
            "FP32 class": model.fp32_predictions[first : first + count],
            "QAT class": model.qat_predictions[first : first + count],
        }),
        "golden class": network.classes(golden),
        "machine class": network.classes(other),
        "differing bits": np.bitwise_count(golden ^ other).sum(axis=1),
        **dict(zip(names, other.view(np.float16).T, strict=True)),
    }
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return stream.getvalue()
