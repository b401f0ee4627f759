"""Operators that only change the order of numbers, repeat them, or look them up."""

from dataclasses import dataclass
from math import prod

import numpy as np
from concord.net.ops import checks
from concord.net.ops.operator import Operator


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Flatten(Operator):
    """An image as a vector, channel by channel."""

    kind = "flatten"

    def shape(self, x):
        return (prod(x),)

    def real(self, x, lengths):
        return x.reshape(len(x), -1)


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
