"""Operators that join several tensors."""

from dataclasses import dataclass
from math import prod

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
