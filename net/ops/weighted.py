"""What convolutions and linear layers share: weights and a bias for each output, and scales folded into them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import numpy as np
from concord.net.ops import checks
from concord.net.ops.grid import IntegerGrid
from concord.net.ops.operator import Operator


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
