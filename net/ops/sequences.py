"""Operators that make sequences of images, images of sequences, and vectors of sequences."""

from dataclasses import dataclass

import numpy as np
from concord.net.arithmetic.windows import TimeAxis, steps_of_image
from concord.net.ops import checks
from concord.net.ops.operator import Operator, Takes, TensorType


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ToSequence(Operator):
    """An image as a sequence, each row or column of which is one time step: its pixels, each with all its channels.

    Attributes:
        time: Whether a row or a column is a time step.
    """

    time: TimeAxis = TimeAxis.COLUMNS

    kind = "to_sequence"

    def __post_init__(self):
        if not isinstance(self.time, TimeAxis):
            object.__setattr__(self, "time", TimeAxis(self.time))

    def result(self, *inputs):
        channels, rows, columns = checks.image(Operator.result(self, *inputs).shape)
        steps, pixels = (rows, columns) if self.time is TimeAxis.ROWS else (columns, rows)
        return TensorType(shape=(channels * pixels,), sequence=True, steps=steps)

    def real(self, x, lengths):
        return steps_of_image(x, self.time)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ToImage(Operator):
    """A sequence as an image of one row, whose columns are the time steps and whose channels are the elements.

    Attributes:
        steps: Number of time steps, which every sequence has.
    """

    steps: int

    kind = "to_image"
    takes = Takes.SEQUENCE

    def __post_init__(self):
        if not isinstance(self.steps, int) or self.steps < 1:
            raise ValueError(f"steps: a whole number of 1 or more is needed, not {self.steps!r}")

    def result(self, *inputs):
        x = Operator.result(self, *inputs)
        if x.steps not in (None, self.steps):
            raise ValueError(f"it makes an image of {self.steps} time steps, but its sequence has {x.steps}; make the "
                             "two equal")
        return TensorType(shape=(*x.shape, 1, self.steps))

    def real(self, x, lengths):
        if x.shape[1] != self.steps or (np.asarray(lengths) != self.steps).any():
            found = {x.shape[1], *np.unique(lengths).tolist()} - {self.steps}
            raise ValueError(f"it makes an image of {self.steps} time steps, but a sequence has {min(found)}: cut or "
                             "pad it")
        return x.swapaxes(1, 2)[:, :, None]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Last(Operator):
    """The last time step of a sequence, a vector.

    Attributes:
        backward: Number of elements, the last ones, that come from a backward direction. These are taken from the
            first time step, where that direction ends.
    """

    backward: int = 0

    kind = "last"
    takes = Takes.SEQUENCE

    def __post_init__(self):
        if not isinstance(self.backward, int) or self.backward < 0:
            raise ValueError(f"backward: a whole number of 0 or more is needed, not {self.backward!r}")

    def result(self, *inputs):
        x = Operator.result(self, *inputs)
        if self.backward > x.shape[0]:
            raise ValueError(f"backward: {self.backward} elements of {x.shape[0]}")
        return TensorType(shape=x.shape)

    def real(self, x, lengths):
        found = x[np.arange(len(x)), np.asarray(lengths) - 1].copy()
        forward = x.shape[-1] - self.backward
        found[:, forward:] = x[:, 0, forward:]
        return found
