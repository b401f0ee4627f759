"""Operators that only order numbers anew, and those that join several tensors."""

from dataclasses import dataclass
from math import prod

import numpy as np
from concord.net.arithmetic.windows import TimeAxis, steps_of_image
from concord.net.ops import checks
from concord.net.ops.operator import Operator, Takes, TensorType


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Flatten(Operator):
    """An image as a vector, channel by channel."""

    kind = "flatten"

    def shape(self, x):
        return (prod(x),)

    def real(self, x, lengths):
        return x.reshape(len(x), -1)


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
class Enlarging(Operator):
    """An image each of whose pixels becomes a rectangle of pixels, y[c, a * p + i, b * q + j] for factors (a, b).

    Attributes:
        factor:   Rows and columns of the rectangle.
        shuffled: Whether a pixel holds the channels of all pixels of its rectangle, row by row (depth to space, of
            blocks of channels): x[(i * b + j) * C + c, p, q]. Otherwise it is repeated: x[c, p, q].
    """

    factor: tuple[int, int]
    shuffled: bool = False

    kind = "enlarge"

    def __post_init__(self):
        if len(self.factor) != 2 or any(not isinstance(size, int) or size < 1 for size in self.factor):
            raise ValueError(f"factor: two whole numbers of 1 or more are needed, not {list(self.factor)}")

    @property
    def parts(self) -> int:
        """Number of pixels whose channels each pixel holds."""
        return prod(self.factor) if self.shuffled else 1

    def shape(self, x):
        channels, rows, columns = checks.image(x)
        if channels % self.parts:
            raise ValueError(f"{channels} channels are not those of {self.parts} pixels")
        return channels // self.parts, rows * self.factor[0], columns * self.factor[1]

    def real(self, x, lengths):
        channels, rows, columns = self.shape(x.shape[1:])
        grid = self.factor if self.shuffled else (1, 1)
        parts = np.broadcast_to(x.reshape(len(x), *grid, channels, *x.shape[2:]),
                                (len(x), *self.factor, channels, *x.shape[2:]))
        return parts.transpose(0, 3, 4, 1, 5, 2).reshape(len(x), channels, rows, columns)

    def attributes(self):
        return {"factor": self.factor, "shuffled": self.shuffled}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Addition(Operator):
    """The sum of tensors of one shape."""

    kind = "add"
    takes = Takes.EITHER
    several = True

    def shape(self, *inputs):
        if len(set(inputs)) > 1:
            raise ValueError(f"it adds {' and '.join(str(list(one)) for one in inputs)}; their shapes must be equal")
        return inputs[0]

    def real(self, *inputs, lengths):
        return sum(inputs[1:], inputs[0])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Multiplication(Operator):
    """The product of tensors of one shape, element by element."""

    kind = "mul"
    takes = Takes.EITHER
    several = True

    def shape(self, *inputs):
        if len(set(inputs)) > 1:
            raise ValueError(f"it multiplies {' and '.join(str(list(one)) for one in inputs)}; their shapes must be "
                             "equal")
        return inputs[0]

    def real(self, *inputs, lengths):
        return prod(inputs[1:], start=inputs[0])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ChannelGating(Operator):
    """The product of an image and a vector that has a number for each channel: squeeze-and-excitation."""

    kind = "channel_gating"
    several = True

    def shape(self, *inputs):
        if len(inputs) != 2 or len(inputs[0]) != 3 or inputs[1] not in ((inputs[0][0],), (inputs[0][0], 1, 1)):
            raise ValueError(f"it takes an image and a number for each of its channels, not "
                             f"{' and '.join(str(list(one)) for one in inputs)}")
        return inputs[0]

    def real(self, *inputs, lengths):
        image, gate = inputs
        return image * gate.reshape(*image.shape[:2], 1, 1)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Concatenation(Operator):
    """Images joined along channels, vectors along elements."""

    kind = "concat"
    takes = Takes.EITHER
    several = True

    def shape(self, *inputs):
        if len({shape[1:] for shape in inputs}) > 1:
            raise ValueError("it joins images of different sizes")
        return (sum(shape[0] for shape in inputs), *inputs[0][1:])

    def real(self, *inputs, lengths):
        return np.concatenate(inputs, axis=1 if inputs[0].ndim == 4 else -1)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Tokens(Operator):
    """An image as one row of positions behind some constant ones, such as the class token of a transformer.

    Attributes:
        tokens: float32[channels, constant positions].
    """

    tokens: np.ndarray

    kind = "tokens"

    def __post_init__(self):
        checks.numbers(tokens=self.tokens)
        checks.dimensions("tokens", self.tokens, 2)

    def shape(self, x):
        channels, rows, columns = checks.image(x)
        checks.channels(channels, len(self.tokens))
        return channels, 1, self.tokens.shape[1] + rows * columns

    def real(self, x, lengths):
        constant = np.broadcast_to(self.tokens.astype(x.dtype), (len(x), *self.tokens.shape))
        return np.concatenate([constant, x.reshape(*x.shape[:2], -1)], axis=2)[:, :, None]
