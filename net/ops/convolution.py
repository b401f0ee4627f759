"""Convolutions of images."""

from dataclasses import asdict, dataclass, replace
from math import prod

import numpy as np
from concord.net.arithmetic.windows import Window
from concord.net.ops import checks
from concord.net.ops.grid import IntegerGrid
from concord.net.ops.weighted import Weighted, restored_grid


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Convolution(Weighted):
    """y = weight * x + bias at each place of the window.

    Attributes:
        weight: float32[outputs, channels / groups, rows, columns].
        bias:   float32[outputs].
        window: The window; its padding is zeros.
        groups: Number of groups of neighbouring channels, each with its own outputs.
        grid:   Integers that the weights stand for, or None.
    """

    weight: np.ndarray
    bias: np.ndarray
    window: Window
    groups: int = 1
    grid: IntegerGrid | None = None

    kind = "conv"

    def __post_init__(self):
        self._check_weights(4)
        checks.window(self.window)
        if self.window.size != self.weight.shape[2:]:
            raise ValueError(f"its window of {self.window.size} pixels does not fit weights {list(self.weight.shape)}")
        if not isinstance(self.groups, int) or self.groups < 1 or self.outputs % self.groups:
            raise ValueError(f"{self.groups} groups do not divide {self.outputs} outputs")

    @property
    def channels(self) -> int:
        """Number of channels that enter."""
        return self.weight.shape[1] * self.groups

    def shape(self, x):
        checks.channels(checks.image(x)[0], self.channels)
        return (self.outputs, *checks.places(self.window, x))

    def real(self, x, lengths):
        weight, places = self.weight.astype(x.dtype), self.window.counts(*x.shape[2:])
        seen = self.window.seen(self.window.bordered(x, 0.0))
        columns = seen.transpose(0, 1, 4, 5, 2, 3).reshape(len(x), self.groups, -1, prod(places))
        sums = weight.reshape(self.groups, self.outputs // self.groups, -1) @ columns
        return sums.reshape(len(x), self.outputs, *places) + self.bias[:, None, None]

    def of_scaled(self, scale: np.ndarray, offset: np.ndarray) -> "Convolution | None":
        """The layer that gives for x what this one gives for scale * x + offset; None if its padding would change."""
        if offset.any() and any(self.window.padding):
            return None
        each = self.weight.shape[1]
        first = np.arange(self.outputs) // (self.outputs // self.groups) * each
        columns = first[:, None] + np.arange(each)  # the channels that each output reads
        scale, offset = (np.broadcast_to(part, self.channels)[columns][:, :, None, None] for part in (scale, offset))
        weight = self.weight.astype(np.float64)
        return replace(self, weight=(weight * scale).astype(np.float32),
                       bias=(self.bias + (weight * offset).sum((1, 2, 3))).astype(np.float32))

    def attributes(self):
        return {**asdict(self.window), "groups": self.groups, **Weighted.attributes(self)}

    @classmethod
    def restored(cls, attributes, tensors):
        window = Window(size=tuple(tensors["weight"].shape[2:]), **{
            key: attributes[key] for key in ("stride", "dilation", "padding")})
        return cls(weight=tensors["weight"], bias=tensors["bias"], window=window, groups=attributes["groups"],
                   grid=restored_grid(attributes, tensors))
