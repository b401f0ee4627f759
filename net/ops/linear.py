"""Linear layers of vectors, or of each time step of a sequence."""

from dataclasses import dataclass, replace

import numpy as np
from concord.net.ops import checks
from concord.net.ops.grid import IntegerGrid
from concord.net.ops.operator import Takes
from concord.net.ops.weighted import Weighted, restored_grid


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
