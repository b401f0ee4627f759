"""Operators with weights and a bias for each output, linear layers and convolutions, and scales folded into them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Self

import numpy as np
from concord.net.arithmetic.windows import Window
from concord.net.ops import checks
from concord.net.ops.grid import IntegerGrid
from concord.net.ops.operator import Operator, Takes


class Weighted(Operator):
    """An operator with weights [outputs, ...] and a bias [outputs].

    Of a network that is quantised already, the weights are the numbers that integers stand for, and `grid` says which
    integers these are: weight / scale + zero_point.
    """

    __slots__ = ()

    weight: np.ndarray
    bias: np.ndarray
    grid: IntegerGrid | None

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return len(self.weight)

    @property
    def weights(self):
        return self.weight.size

    def scaled(self, scale: np.ndarray, offset: np.ndarray) -> Self:
        """The same layer whose results are multiplied and moved: scale * y + offset, of [outputs] or one number."""
        beside = [1] * (self.weight.ndim - 1)
        return replace(self, weight=(self.weight * scale.reshape(-1, *beside)).astype(np.float32),
                       bias=(self.bias * scale + offset).astype(np.float32))

    def tensors(self):
        found = {"weight": self.weight, "bias": self.bias}
        if self.grid is not None:
            found |= {f"weight_{key}": np.asarray(getattr(self.grid, key), np.float32).reshape(-1)
                      for key in ("scale", "zero_point")}
        return found

    def attributes(self):
        return {} if self.grid is None else {
            f"weight_{key}": getattr(self.grid, key) for key in ("bits", "signed", "narrow")}

    def _check_weights(self, dimensions: int):
        checks.numbers(weight=self.weight, bias=self.bias)
        checks.dimensions("weight", self.weight, dimensions)
        checks.shaped("bias", self.bias, (self.outputs,))
        if self.grid is not None:
            self.grid.check_weights(self.weight)


def restored_grid(attributes: Mapping[str, object], tensors: Mapping[str, np.ndarray]) -> IntegerGrid | None:
    """The grid of the weights of a file, or None if they are no integers."""
    if "weight_scale" not in tensors:
        return None
    return IntegerGrid.of_outputs(tensors["weight_scale"], tensors["weight_zero_point"], tensors["weight"], **{
        key: attributes[f"weight_{key}"] for key in ("bits", "signed", "narrow")})


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Linear(Weighted):
    """y = weight @ x + bias, of a vector or of each time step of a sequence.

    Attributes:
        weight: float32[outputs, inputs].
        bias:   float32[outputs].
        grid:   Integers that the weights stand for, or None.
    """

    weight: np.ndarray
    bias: np.ndarray
    grid: IntegerGrid | None = None

    kind = "dense"
    takes = Takes.EITHER

    def __post_init__(self):
        self._check_weights(2)

    def shape(self, x):
        if len(x) > 1:
            raise ValueError(f"it takes a vector, but gets the image {list(x)}; flatten it before")
        checks.channels(x[0], self.weight.shape[1])
        return (self.outputs,)

    def real(self, x, lengths):
        return x @ self.weight.astype(x.dtype).T + self.bias

    def of_scaled(self, scale: np.ndarray, offset: np.ndarray) -> "Linear":
        """The layer that gives for x what this one gives for scale * x + offset.

        The channels of a flattened image have as many neighbouring inputs as pixels, so each number is repeated.
        """
        scale, offset = (np.repeat(part, self.weight.shape[1] // part.size) for part in (scale, offset))
        weight = self.weight.astype(np.float64)
        return replace(self, weight=(weight * scale).astype(np.float32),
                       bias=(self.bias + weight @ offset).astype(np.float32))

    @classmethod
    def restored(cls, attributes, tensors):
        return cls(weight=tensors["weight"], bias=tensors["bias"], grid=restored_grid(attributes, tensors))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class NodeLinear(Linear):
    """A product with the vector of all nodes of a graph: with the graph's matrix, or with one matrix at each node.

    A graph convolution is both, one after the other. Weights are those of the whole vector, and training keeps their
    zeros, which are the structure of the graph. Each node's own copy of a matrix is trained apart.

    Attributes:
        weight:   float32[outputs, inputs].
        bias:     float32[outputs].
        grid:     Integers that the weights stand for, or None.
        constant: Whether training keeps all weights, which are the graph's own.
    """

    constant: bool = False

    kind = "nodes"

    def attributes(self):
        return {**Weighted.attributes(self), "constant": self.constant}

    @classmethod
    def restored(cls, attributes, tensors):
        return cls(weight=tensors["weight"], bias=tensors["bias"], grid=restored_grid(attributes, tensors),
                   constant=bool(attributes["constant"]))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Convolution(Weighted):
    """y = weight * x + bias at each position of the window.

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
        return (self.outputs, *checks.positions(self.window, x))

    def real(self, x, lengths):
        weight, positions = self.weight.astype(x.dtype), self.window.counts(*x.shape[2:])
        seen = self.window.seen(self.window.bordered(x, 0.0))
        columns = seen.transpose(0, 1, 4, 5, 2, 3).reshape(len(x), self.groups, -1, prod(positions))
        sums = weight.reshape(self.groups, self.outputs // self.groups, -1) @ columns
        return sums.reshape(len(x), self.outputs, *positions) + self.bias[:, None, None]

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
