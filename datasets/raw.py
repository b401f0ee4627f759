"""Samples as they stand in their files, and the inputs of a network that are made of them.

The latter have another shape or order of axes, scale and mean, and are binary16.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from concord.datasets.description import Description, ImageLayout, Preprocessing

#: Most bytes of memory that the arrays of one file, or the images of one folder, may take.
LIMIT = 2**32
#: Numbers that are converted at once.
TOGETHER = 2**22


class TooLarge(ValueError):
    """A number that binary16 cannot hold."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Raw:
    """Samples as they stand in a file.

    Attributes:
        inputs:   Numbers [samples, ...].
        labels:   Numbers or texts [samples] or [samples, ...], or None.
        lengths:  Numbers [samples], time steps of each sequence, or None.
        location: File and name of the inputs, for messages.
        columns:  Names of the elements of a sample, for messages; may be empty.
        numbers:  Number of each sample in its file; None where they are counted from 0.
        unit:     What is counted: sample or line.
    """

    inputs: np.ndarray
    labels: np.ndarray | None
    lengths: np.ndarray | None
    location: str
    columns: tuple[str, ...] = ()
    numbers: np.ndarray | None = None
    unit: str = "sample"

    def sample(self, index: int) -> str:
        """Words for a sample."""
        return f"{self.unit} {index if self.numbers is None else self.numbers[index]}"

    def part(self, chosen: np.ndarray | slice) -> "Raw":
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


def check_size(location: str, shape: tuple[int, ...], itemsize: int):
    """Refuse an array that would take too much memory.

    Raises:
        ValueError: it would.
    """
    if math.prod(shape) * itemsize > LIMIT:
        raise ValueError(f"{location}: an array {list(shape)} of {itemsize} bytes each takes more than "
                         f"{LIMIT // 2**30} GiB; split the data, or store them in fewer bytes")


def integers(raw: Raw, preprocessing: Preprocessing) -> Raw | None:
    """Samples that are integers, and no preprocessing changes; those of a CSV file, which are whole, become int64."""
    if {*(preprocessing.scale or ()), *preprocessing.std} - {1} or set(preprocessing.mean) - {0}:
        return None
    if raw.columns and raw.inputs.dtype.kind == "f" and _whole(raw.inputs):
        raw = replace(raw, inputs=raw.inputs.astype(np.int64))
    return raw if raw.inputs.dtype.kind in "iu" else None


def _whole(numbers: np.ndarray) -> bool:
    """Whether all are integers that int64 has."""
    return bool(((np.abs(numbers) < 2.0**63) & (numbers == np.rint(numbers))).all())


def prepared(raw: Raw, description: Description, scale: float) -> tuple[np.ndarray, np.ndarray | None, tuple[int, ...]]:
    """Inputs and lengths as `Samples` has them, and the shape of one sample or time step.

    Args:
        raw:         The samples.
        description: Their preprocessing.
        scale:       Scale if the preprocessing has none.

    Raises:
        ValueError: the shape does not fit, or a number is not finite or too large for binary16.
    """
    lengths = None if raw.lengths is None else _lengths(raw.lengths, raw.location)
    sequence = description.sequence or lengths is not None
    axes = 2 if sequence else 1
    shape = _shape(raw, axes, description.preprocessing.shape)
    numbers = raw.inputs.reshape(*raw.inputs.shape[:axes], *shape)
    if description.preprocessing.layout is ImageLayout.HWC:
        if len(shape) != 3:
            raise ValueError(f"{raw.location}: layout \"hwc\" is for images [rows, columns, channels], and a sample "
                             f"has the shape {list(shape)}; give `shape`, or leave `layout` out")
        numbers, shape = np.moveaxis(numbers, -1, -3), (shape[2], *shape[:2])
    check_size(raw.location, (numbers.size,), 2)
    factors = [_factors(raw, name, values, shape) for name, values in (
        ("scale", description.preprocessing.scale or (scale,)), ("mean", description.preprocessing.mean),
        ("std", description.preprocessing.std))]
    if lengths is not None:
        _check_inside(raw, lengths, numbers.shape[1])
    size = math.prod(shape)
    made = np.empty((*numbers.shape[:axes], size), np.uint16)
    step = max(1, TOGETHER // max(1, numbers[0].size))
    for at in range(0, len(numbers), step):
        part = numbers[at:at + step].astype(np.float64)
        inside = None if lengths is None else np.arange(part.shape[1]) < lengths[at:at + step, None]
        if inside is not None:
            part[~inside] = 0  # what stands there is padding, whatever it is
        _check_finite(raw, part, at)
        scale_by, mean, std = factors
        with np.errstate(over="ignore"):
            halves = ((part * scale_by - mean) / std).astype(np.float16)
        _check_held(raw, halves, part, at)
        if inside is not None:
            halves[~inside] = 0
        made[at:at + step] = halves.reshape(*halves.shape[:axes], size).view(np.uint16)
    return made, lengths, shape


def _shape(raw: Raw, axes: int, wanted: tuple[int, ...] | None) -> tuple[int, ...]:
    """Shape of one sample or time step, before the layout is applied."""
    if raw.inputs.ndim < axes:
        raise ValueError(f"{raw.location}: sequences are numbers [samples, time, ...], and one sample is "
                         f"{list(raw.inputs.shape[1:])}")
    own = raw.inputs.shape[axes:] or (1,)
    if wanted and math.prod(wanted) != math.prod(own):
        raise ValueError(f"{raw.location}: shape = {list(wanted)} has {math.prod(wanted):,} numbers, but one "
                         f"{'time step' if axes == 2 else 'sample'} has {math.prod(own):,}, {list(own)}")
    return wanted or own


def _factors(raw: Raw, name: str, values: tuple[float, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of the preprocessing, to be broadcast over samples."""
    if len(values) == 1:
        return np.array(values[0])
    if len(shape) == 3 and len(values) == shape[0]:
        return np.array(values)[:, None, None]
    if len(shape) < 3 and len(values) == shape[-1]:
        return np.array(values)
    raise ValueError(f"{raw.location}: {name} has {len(values)} numbers; one is needed, or one for each channel of an "
                     f"image or element of a vector, and a sample has the shape {list(shape)}")


def _lengths(lengths: np.ndarray, location: str) -> np.ndarray:
    """int64[samples], the lengths of sequences."""
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu":
        raise ValueError(f"{location}: lengths are integers[samples], not {lengths.dtype}{list(lengths.shape)}")
    return lengths.astype(np.int64)


def _check_inside(raw: Raw, lengths: np.ndarray, steps: int):
    for index in np.flatnonzero((lengths < 1) | (lengths > steps))[:1]:
        raise ValueError(f"{raw.location}, {raw.sample(index)}: its length {lengths[index]} is not in 1..{steps}")


def _check_finite(raw: Raw, part: np.ndarray, first: int):
    """Refuse NaN and infinity, with their index."""
    if not (finite := np.isfinite(part)).all():
        index = np.argwhere(~finite)[0]
        raise ValueError(f"{_where(raw, index, first)}: {part[tuple(index)]} is no finite number; repair it or leave "
                         f"the {raw.unit} out")


def _check_held(raw: Raw, halves: np.ndarray, part: np.ndarray, first: int):
    """Refuse numbers that binary16 makes infinite."""
    if not (finite := np.isfinite(halves)).all():
        index = np.argwhere(~finite)[0]
        raise TooLarge(f"{_where(raw, index, first)}: {part[tuple(index)]:g} is too large for binary16 (65,504) "
                       "after preprocessing; give `scale`, or `mean` and `std`, below [preprocessing]")


def _where(raw: Raw, index: np.ndarray, first: int) -> str:
    """Words for an element of a sample: its column, if that has a name, else its index."""
    sample, inner = raw.sample(first + int(index[0])), index[1:].tolist()
    if raw.columns:
        return f"{raw.location}, {sample}, column {raw.columns[inner[0] if len(inner) == 1 else -1]!r}"
    return f"{raw.location}, {sample}" + (f", element {inner}" if inner else "")
