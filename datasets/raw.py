"""Samples as they stand in their files, and the limits of what is read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

#: Most bytes of memory that the arrays of one file, or the images of one folder, may take.
LIMIT = 2**32


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Raw:
    """Samples as they stand in a file.

    Attributes:
        inputs:  Numbers [samples, ...].
        labels:  Numbers or texts [samples] or [samples, ...], or None.
        lengths: Numbers [samples], time steps of each sequence, or None.
        place:   File and name of the inputs, for messages.
        columns: Names of the elements of a sample, for messages; may be empty.
        numbers: Number of each sample in its file; None where they are counted from 0.
        unit:    What is counted: sample or line.
    """

    inputs: np.ndarray
    labels: np.ndarray | None
    lengths: np.ndarray | None
    place: str
    columns: tuple[str, ...] = ()
    numbers: np.ndarray | None = None
    unit: str = "sample"

    def sample(self, index: int) -> str:
        """Words for a sample."""
        return f"{self.unit} {index if self.numbers is None else self.numbers[index]}"

    def part(self, chosen: np.ndarray) -> "Raw":
        """The samples of some indices."""
        numbers = np.arange(len(self.inputs)) if self.numbers is None else self.numbers
        labels, lengths = (None if array is None else array[chosen] for array in (self.labels, self.lengths))
        return replace(self, inputs=self.inputs[chosen], labels=labels, lengths=lengths, numbers=numbers[chosen])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Found:
    """What a reader found.

    Attributes:
        parts:   Samples by the name of their part: train, test, calibration, or all where they are not parted.
        classes: Names of the classes, if the data have them.
        notes:   Sentences on what was chosen by default.
        scale:   Scale of the numbers if the description has none.
        image:   Whether samples are images [channels, rows, columns].
    """

    parts: Mapping[str, Raw]
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    scale: float = 1.0
    image: bool = False


def check_size(place: str, shape: tuple[int, ...], itemsize: int):
    """Refuse an array that would take too much memory.

    Raises:
        ValueError: it would.
    """
    if math.prod(shape) * itemsize > LIMIT:
        raise ValueError(f"{place}: an array {list(shape)} of {itemsize} bytes each takes more than "
                         f"{LIMIT // 2**30} GiB; split the data, or store them in fewer bytes")
