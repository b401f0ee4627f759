"""Samples of a data set as the machine reads them, and what they are there to measure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from concord.lib.input_axes import Order

if TYPE_CHECKING:
    from concord.datasets.raw import Raw

#: What a model has as the name of its data set where it has none; no data set has this name.
NO_DATA = "none"
#: The class of a time step that has none, such as one of the padding: it is neither trained nor measured.
UNLABELLED = -1


class Task(StrEnum):
    """What a network does with a sample, which decides what its labels are and how its results are measured."""

    CLASSIFICATION = "classification"  #: labels are classes, and the largest output is the answer
    REGRESSION = "regression"  #: labels are real numbers, one for each output
    ANOMALY = "anomaly"  #: labels are 1 for an anomaly and 0 otherwise; outputs are a score, or the input again
    NONE = "none"  #: there are no labels


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Samples:
    """Samples of one kind.

    Attributes:
        inputs:  uint16[samples, inputs], binary16 patterns; for sequences [samples, time, inputs], padded with +0.
        lengths: int64[samples], time steps of each sequence; None if all are equal, or the data are vectors.
        labels:  int[samples], class of each sample, or int[samples, positions], class of each of its steps or pixels,
            UNLABELLED where there is none; float32[samples, outputs] for regression; None if unknown.
        classes: Names of the classes; may be empty.
        raw:     The same samples as they stand in their file, if they are integers, which may be token numbers.
    """

    inputs: np.ndarray
    lengths: np.ndarray | None = None
    labels: np.ndarray | None = None
    classes: tuple[str, ...] = ()
    raw: "Raw | None" = None

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.inputs)

    def __iter__(self) -> Iterator[np.ndarray]:
        """The samples one by one, see `one`."""
        return map(self.one, range(len(self)))

    def one(self, index: int) -> np.ndarray:
        """One sample, without the padding after its last time step."""
        return self.inputs[index] if self.lengths is None else self.inputs[index, : self.lengths[index]]

    @property
    def steps(self) -> int:
        """Number of classes of one sample: that of its time steps or pixels where each has one, else 1."""
        return self.labels.shape[1] if self.labels is not None and (
            self.labels.ndim == 2 and self.labels.dtype.kind == "i") else 1

    def first(self, count: int) -> "Samples":
        """The first `count` samples."""
        return self.part(slice(count))

    def part(self, chosen: slice | np.ndarray) -> "Samples":
        """The samples of a slice, or those that a bool[samples] or int[...] chooses."""
        lengths, labels = (None if a is None else a[chosen] for a in (self.lengths, self.labels))
        return Samples(inputs=self.inputs[chosen], lengths=lengths, labels=labels, classes=self.classes,
                       raw=self.raw and self.raw.part(chosen))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DataSet:
    """Samples to train on, to calibrate with and to measure with.

    Attributes:
        name:        Name of the data set.
        task:        What a network does with a sample.
        shape:       Shape of one sample, or of one time step of a sequence.
        train:       Training samples, or None.
        test:        Test samples, or None.
        calibration: Samples that find the ranges of values, or None: training samples do this, too.
        description: TOML text that says how the samples are read from their files. It travels with the model.
        notes:       Sentences on what was chosen by default.
        order:       Order of the axes of a sample.
        image:       Whether a sample is known to be an image [channels, rows, columns].
        sorted_classes: Whether the classes are the texts that occur as labels, in alphabetic order, so that a class
            without samples is missing.
        refused:     Why its integers are no inputs but for a network that looks up their vectors; empty where they are.
    """

    name: str
    task: Task
    shape: tuple[int, ...]
    train: Samples | None
    test: Samples | None
    calibration: Samples | None
    description: str
    notes: tuple[str, ...] = ()
    order: Order = Order.FILE
    image: bool = False
    sorted_classes: bool = False
    refused: str = ""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; may be empty."""
        return next((part.classes for part in (self.test, self.train, self.calibration) if part is not None), ())

    @property
    def sequence(self) -> bool:
        """Whether a sample is a sequence of vectors."""
        return any(part.inputs.ndim == 3 for part in (self.test, self.train, self.calibration) if part is not None)

    def tested(self, location: str) -> Samples:
        """The test samples.

        Args:
            location: Where they are looked for, for messages.

        Raises:
            ValueError: there are none.
        """
        if self.test is None:
            raise ValueError(f"{location}: it holds no test set; with `test = 1` in a TOML file all samples are one")
        return self.test

    def as_sequences(self, numbers: int = 0) -> "DataSet":
        """The same samples for a recurrent network: the first axis of each becomes time.

        Args:
            numbers: Numbers of a time step that the network takes, for the advice in an error; 0 if not known.

        Raises:
            ValueError: a sample has only one axis.
        """
        if self.sequence:
            return self
        shape = self.shape[1:] if self.shape[:1] == (1,) and len(self.shape) == 3 else self.shape
        if len(shape) < 2:
            steps = shape[0] // numbers if numbers and shape and shape[0] % numbers == 0 else "time"
            raise ValueError(f"{self.name}: a recurrent network takes sequences, [time, numbers] each, and a sample is "
                             f"{list(self.shape)}; give arrays [samples, {steps}, {numbers or 'numbers'}], or a TOML "
                             "file that describes the data, with "
                             f"`shape = [{steps}, {numbers or 'numbers'}]` below [preprocessing]")
        parts = {name: replace(part, inputs=part.inputs.reshape(len(part), shape[0], -1))
                 for name, part in self.parts().items() if part is not None}
        return replace(self, shape=shape[1:], image=False, **parts)

    def parts(self) -> dict[str, Samples | None]:
        """Training, test and calibration samples by the name of their attribute."""
        return {"train": self.train, "test": self.test, "calibration": self.calibration}


def sample_range(text: str | None, first: int, available: int, default: int) -> slice:
    """The range of samples that `--samples` and `--first` choose.

    Args:
        text:      A number, "all", or None for `default` samples, or for all if there are fewer.
        first:     Index of the first sample.
        available: Number of samples that there are.
        default:   Number of samples if `text` is None.

    Raises:
        ValueError: there are no such samples.
    """
    if not 0 <= first < available:
        raise ValueError(f"--first {first} is not one of the samples 0..{available - 1}")
    if text is None:
        return slice(first, min(first + default, available))
    if text == "all":
        return slice(first, available)
    if not text.isdecimal() or not 1 <= int(text) <= available - first:
        raise ValueError(f"--samples {text} is neither 'all' nor a number in 1..{available - first}")
    return slice(first, first + int(text))
