"""How the elements of an image lie in the words that the host sends or receives."""

from dataclasses import asdict, dataclass, fields

import numpy as np
from concord.spec.machine.config import Config

MOST_PLACES = 1 << 24  #: Most elements of a position.


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Positions of a window in an image, row by row; at each its pixels, row by row, and all channels of each pixel.

    A sample holds its elements by channel, row and column. Zeros fill up each position to a multiple of `align`
    elements, so that it begins a native vector (`align` = N) or a word (M). A window of one pixel gives the pixels of
    the image one after the other; larger windows give patches, the operands of a convolution.

    Attributes:
        channels, rows, columns: Shape of the image.
        align:    Multiple of elements to which each position is padded.
        window:   Rows and columns of a window.
        stride:   Distance from one position to the next, down and across.
        dilation: Distance from one pixel of a window to the next, down and across.
        padding:  Rows and columns of zeros above, below, left and right of the image.
        places:   Where the channels of a pixel lie, where they do not follow each other: as runs of channels, each the
            place of its first one, the distance to the next one, and their number.

    Raises:
        ValueError: an attribute has too few or too many numbers, a number is negative or zero where none may be, no
            window fits into the image, or the runs do not give each channel a place of its own.
    """

    channels: int
    rows: int
    columns: int
    align: int
    window: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    places: tuple[tuple[int, int, int], ...] = ()

    def __post_init__(self):
        for field in (one for one in fields(self) if one.name != "places"):
            value, lowest = getattr(self, field.name), int(field.name != "padding")
            count = len(field.default) if isinstance(field.default, tuple) else 1
            numbers = value if isinstance(value, tuple) and count > 1 else (value,)
            if len(numbers) != count or not all(type(each) is int and each >= lowest for each in numbers):
                raise ValueError(f"layout: {field.name} is {value}, whole numbers from {lowest} on are needed"
                                 + f", {count} of them" * (count > 1))
        if min(self.positions) < 1:
            raise ValueError(f"layout: a window of {self.window[0]} x {self.window[1]} pixels does not fit into an "
                             f"image of {self.rows} x {self.columns}")
        self._check_places()

    def _check_places(self):
        """Refuse runs that are none, or that do not give each channel a place of its own."""
        for run in self.places:
            if len(run) != 3 or not all(type(each) is int and each >= lowest for each, lowest in zip(
                    run, (0, 1, 1), strict=True)):
                raise ValueError(f"layout: {run} in places is no run of channels, which has the place of the first "
                                 "one, the distance to the next one, and their number")
        if not self.places:
            return
        if self.window != (1, 1) or sum(number for *_, number in self.places) != self.channels:
            raise ValueError(f"layout: places are those of the {self.channels} channels of single pixels")
        if max(first + step * (number - 1) for first, step, number in self.places) >= MOST_PLACES:
            raise ValueError(f"layout: places has one beyond the {MOST_PLACES:,} that a pixel can have")
        if len(np.unique(self._lanes())) < self.channels:
            raise ValueError("layout: places has one place for two channels")

    def _lanes(self) -> np.ndarray:
        """int64[channels], the place of each channel in its pixel."""
        runs = self.places or ((0, 1, self.channels),)
        return np.concatenate([first + step * np.arange(number) for first, step, number in runs])

    @classmethod
    def from_record(cls, record: dict) -> "Layout":
        """Make a layout from a record that `record` made, also after a trip through JSON.

        Raises:
            ValueError: it lacks an attribute, has an unknown one, or one that no layout has.
        """
        try:
            return cls(**{name: _tuples(value) for name, value in record.items()})
        except TypeError as error:
            raise ValueError(f"layout: {error}") from error

    def record(self) -> dict:
        """The attributes, for JSON; without `places` where channels follow each other."""
        return {name: value for name, value in asdict(self).items() if name != "places" or value}

    @property
    def size(self) -> int:
        """Number of elements of the image."""
        return self.channels * self.rows * self.columns

    @property
    def positions(self) -> tuple[int, int]:
        """Number of positions down and across."""
        sizes = self.rows + sum(self.padding[:2]), self.columns + sum(self.padding[2:])
        down, across = ((size - dilation * (window - 1) - 1) // stride + 1 for size, window, stride, dilation in zip(
            sizes, self.window, self.stride, self.dilation, strict=True))
        return down, across

    @property
    def lanes(self) -> int:
        """Number of elements of a position, from the first to the last one of the sample."""
        return int(self._lanes().max()) + 1 if self.places else self.channels * self.window[0] * self.window[1]

    def order(self) -> np.ndarray:
        """int64[positions, elements], the index in the sample of each element that is sent; -1 for a zero."""
        padded = np.pad(np.arange(self.size).reshape(self.channels, self.rows, self.columns),
                        ((0, 0), self.padding[:2], self.padding[2:]), constant_values=-1)
        row, column = (
            np.arange(count)[:, None] * stride + np.arange(window) * dilation for count, window, stride, dilation in
            zip(self.positions, self.window, self.stride, self.dilation, strict=True))
        seen = padded[:, row[:, None, :, None], column[None, :, None, :]]  # channels, positions, window
        elements = np.moveaxis(seen, 0, -1).reshape(self.positions[0] * self.positions[1], -1)
        if self.places:
            packed, elements = elements, np.full((len(elements), self.lanes), -1)
            elements[:, self._lanes()] = packed
        return np.pad(elements, ((0, 0), (0, -elements.shape[1] % self.align)), constant_values=-1)

    def laid(self, samples: np.ndarray) -> np.ndarray:
        """Samples [..., size] as they are sent, [..., elements]."""
        order = self.order().reshape(-1)
        return np.where(order < 0, samples.dtype.type(0), samples[..., order])

    def taken(self, elements: np.ndarray) -> np.ndarray:
        """The samples [..., size] of elements [..., elements] that were received."""
        order = self.order().reshape(-1)
        samples = np.zeros((*elements.shape[:-1], self.size), elements.dtype)
        samples[..., order[order >= 0]] = elements[..., order >= 0]
        return samples

    def check(self, config: Config, size: int, what: str, *, whole: bool = False):
        """Refuse a layout that does not fit a machine or a number of elements.

        Args:
            config: The machine.
            size:   Number of elements of a sample.
            what:   Name of the sample, for errors.
            whole:  Whether every element of the image must be at a position.

        Raises:
            ValueError: a sentence that names the layout.
        """
        if self.size != size:
            raise ValueError(f"the layout of {what} has {self.channels} x {self.rows} x {self.columns} elements, "
                             f"the network {size}")
        if self.align % config.mfu_lanes:
            raise ValueError(f"the layout of {what} aligns positions to {self.align} elements, which is no multiple of "
                             f"the {config.mfu_lanes} lanes of a word")
        if whole and len(np.unique(self.order())) < size + bool((self.order() < 0).any()):
            raise ValueError(f"the layout of {what} leaves out elements of the image")


def runs_of(places: np.ndarray) -> tuple[tuple[int, int, int], ...]:
    """The attribute `places` of a layout for channels at these places; none where they follow each other."""
    if np.array_equal(places, np.arange(len(places))):
        return ()
    found, at = [], 0
    while at < len(places):
        steps = np.diff(places[at:])
        step = int(steps[0]) if len(steps) and steps[0] > 0 else 1
        same = np.flatnonzero(steps != step)
        number = int(same[0]) + 1 if len(same) else len(steps) + 1
        found.append((int(places[at]), step, number))
        at += number
    return tuple(found)


def _tuples(value):
    """Lists of JSON, and those in them, as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
