"""Sums and concatenations of several tensors."""

from dataclasses import dataclass

import numpy as np
from concord.net.ops.operator import Operator, Takes


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
