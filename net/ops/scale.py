"""Scales and offsets of each channel: batch normalisation, and constants; offsets of each pixel."""

from dataclasses import dataclass, replace

import numpy as np
from concord.net.ops import checks
from concord.net.ops.operator import Operator, Takes


class Scale(Operator):
    """y = scale * x + offset, with one number for each channel of an image or each element of a vector."""

    __slots__ = ()

    takes = Takes.EITHER

    def line(self) -> tuple[np.ndarray, np.ndarray]:
        """Scale and offset, float64 each."""
        raise NotImplementedError

    def real(self, x, lengths):
        scale, offset = (part[:, None, None] if x.ndim == 4 else part for part in self.line())
        return scale * x + offset


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BatchNorm(Scale):
    """y = weight * (x - mean) / sqrt(variance + epsilon) + bias.

    Attributes:
        weight, bias, mean, variance: float32[channels].
        epsilon: Number that keeps the root away from zero.
    """

    weight: np.ndarray
    bias: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    epsilon: float = 1e-5

    kind = "batch_norm"

    def __post_init__(self):
        numbers = self.tensors()
        checks.numbers(**numbers)
        checks.dimensions("weight", self.weight, 1)
        for name, value in numbers.items():
            checks.shaped(name, value, self.weight.shape)
        checks.number(epsilon=self.epsilon)
        if not (smallest := self.variance.min() + self.epsilon) > 0:
            raise ValueError(f"variance: its smallest value with epsilon is {smallest:.3g}, but a number above 0 is "
                             "needed; train again")

    def shape(self, x):
        checks.channels(x[0], len(self.weight))
        return x

    def line(self):
        weight, bias, mean, variance = (value.astype(np.float64) for value in (
            self.weight, self.bias, self.mean, self.variance))
        scale = weight / np.sqrt(variance + self.epsilon)
        return scale, bias - scale * mean

    @property
    def spread(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of the results over the data that the statistics are of, float64 each."""
        return self.bias.astype(np.float64), np.abs(self.weight.astype(np.float64))

    def scaled(self, scale: np.ndarray, offset: np.ndarray) -> "BatchNorm":
        """The same normalisation whose results are multiplied and moved: scale * y + offset."""
        return replace(self, weight=(self.weight * scale).astype(np.float32),
                       bias=(self.bias * scale + offset).astype(np.float32))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Affine(Scale):
    """y = scale * x + offset.

    Attributes:
        scale, offset: float32[channels], or [1] for all channels.
    """

    scale: np.ndarray
    offset: np.ndarray

    kind = "affine"

    def __post_init__(self):
        checks.numbers(scale=self.scale, offset=self.offset)
        checks.dimensions("scale", self.scale, 1)
        checks.shaped("offset", self.offset, self.scale.shape)

    @property
    def neutral(self) -> bool:
        """Whether it changes nothing."""
        return bool((self.scale == 1).all() and not self.offset.any())

    def shape(self, x):
        if len(self.scale) != 1:
            checks.channels(x[0], len(self.scale))
        return x

    def line(self):
        return self.scale.astype(np.float64), self.offset.astype(np.float64)

    def scaled(self, scale: np.ndarray, offset: np.ndarray) -> "Affine":
        """The same operator whose results are multiplied and moved: scale * y + offset."""
        made = np.broadcast_arrays(self.scale * scale, self.offset * scale + offset)
        return replace(self, **dict(zip(("scale", "offset"), (part.astype(np.float32) for part in made), strict=True)))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Offsets(Operator):
    """y = x + offset, with a number for each channel of each pixel of an image, such as the embedding of a position.

    Attributes:
        offset: float32[channels, rows, columns].
    """

    offset: np.ndarray

    kind = "offsets"

    def __post_init__(self):
        checks.numbers(offset=self.offset)
        checks.dimensions("offset", self.offset, 3)

    @property
    def label(self) -> str:
        return "offsets of pixels"

    def shape(self, x):
        checks.shaped("offset", self.offset, checks.image(x))
        return x

    def real(self, x, lengths):
        return x + self.offset
