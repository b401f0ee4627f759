"""Layers that are functions of single numbers."""

from dataclasses import dataclass, replace

import numpy as np
from concord.golden.lib import float16
from concord.golden.lib.float16 import to_bits, to_real
from concord.golden.mfu.multifunction import activate
from concord.net.arithmetic.integer import IntegerProduct
from concord.net.layers.layer import Layer, Trace
from concord.net.ops.pointwise import Gelu
from concord.spec.numbers.activation import Activation


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Curve(Layer):
    """An activation function of a vector that other layers read without it.

    Attributes:
        name:       Name of the layer, unique in its model.
        inputs:     Number of elements of the vector.
        activation: The activation function.
    """

    name: str
    inputs: int
    activation: Activation

    title = "activation function"
    keeps_shape = True

    @property
    def outputs(self) -> int:
        return self.inputs

    def run(self, x, lengths, sums=IntegerProduct.totals):
        return Trace(outputs=activate(self.activation, x[0]))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Leaky(Layer):
    """A relu with a slope of negative numbers: max(x, slope * x), whose product is rounded.

    Attributes:
        name:   Name of the layer, unique in its model.
        inputs: Number of elements of the tensor.
        slope:  Slope of negative numbers, 0 to 1, which the machine rounds to binary16.
    """

    name: str
    inputs: int
    slope: float

    title = "leaky relu"
    keeps_shape = True

    def __post_init__(self):
        if not 0 <= self.slope <= 1:
            raise ValueError(f"layer {self.name!r}, slope: a number of 0 to 1 is needed, not {self.slope}; export the "
                             "model again")

    @property
    def factor(self) -> np.ndarray:
        """uint16[1], the slope as a binary16 pattern."""
        return to_bits(np.array([self.slope]))

    def stored(self) -> "Leaky":
        """The layer with the slope that the machine holds."""
        return replace(self, slope=float(to_real(self.factor)[0]))

    @property
    def outputs(self) -> int:
        return self.inputs

    def run(self, x, lengths, sums=IntegerProduct.totals):
        sloped = float16.mul(x[0], np.broadcast_to(self.factor, x[0].shape))
        return Trace(outputs=float16.maximum(sloped, x[0]))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ClippedLine(Layer):
    """A line with two limits, such as a hard sigmoid or a relu6: min(relu(x + shift) * slope, ceiling).

    The sum and the product are rounded. The machine computes max(relu(x + shift) * -slope, -ceiling) * -1.

    Attributes:
        name:    Name of the layer, unique in its model.
        inputs:  Number of elements of the tensor.
        shift:   What is added, which the machine rounds to binary16; nothing is where that is 0.
        slope:   Factor above zero, which the machine rounds to binary16.
        ceiling: Largest result, which the machine rounds to binary16.
    """

    name: str
    inputs: int
    shift: float
    slope: float
    ceiling: float

    title = "clipped line"
    keeps_shape = True

    def __post_init__(self):
        if not np.isfinite(self.operands.view(np.float16)).all() or not self.slope > 0 < self.ceiling:
            raise ValueError(f"layer {self.name!r}: its slope {self.slope:g}, ceiling {self.ceiling:g} and shift "
                             f"{self.shift:g} must be numbers of binary16, and all but the shift above 0; export the "
                             "model again")

    @property
    def real_operands(self) -> np.ndarray:
        """float64[4], the operands of the machine: shift, -slope, -ceiling and -1."""
        return np.array([self.shift, -self.slope, -self.ceiling, -1.0])

    @property
    def operands(self) -> np.ndarray:
        """uint16[4], the same as binary16 patterns."""
        with np.errstate(over="ignore"):
            return to_bits(self.real_operands)

    @property
    def moves(self) -> bool:
        """Whether there is a shift."""
        return bool(self.operands[0])

    def stored(self) -> "ClippedLine":
        """The layer with the numbers that the machine holds."""
        shift, slope, ceiling, _ = to_real(self.operands).tolist()
        return replace(self, shift=shift, slope=-slope, ceiling=-ceiling)

    @property
    def outputs(self) -> int:
        return self.inputs

    def run(self, x, lengths, sums=IntegerProduct.totals):
        shift, slope, ceiling, minus = (np.broadcast_to(one, x[0].shape) for one in self.operands)
        made = activate(Activation.RELU, float16.add(x[0], shift) if self.moves else x[0])
        return Trace(outputs=float16.mul(float16.maximum(float16.mul(made, slope), ceiling), minus))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Limited(Layer):
    """A tensor with a smallest and a largest value, such as a hard tanh: min(max(x, lowest), highest).

    Nothing is rounded but the limits. The machine computes max(max(x, lowest) * -1, -highest) * -1.

    Attributes:
        name:    Name of the layer, unique in its model.
        inputs:  Number of elements of the tensor.
        lowest:  Smallest result, which the machine rounds to binary16; None for no limit.
        highest: Largest result, in the same way.
    """

    name: str
    inputs: int
    lowest: float | None = None
    highest: float | None = None

    title = "limits"
    keeps_shape = True

    def __post_init__(self):
        numbers = self.operands.view(np.float16)
        limits = numbers[[kept for kept, limit in ((0, self.lowest), (2, self.highest)) if limit is not None]]
        if not len(limits) or not np.isfinite(limits).all() or len(limits) == 2 and not numbers[0] < -numbers[2]:
            raise ValueError(f"layer {self.name!r}: its limits {self.lowest} and {self.highest} must be numbers of "
                             "binary16, the lower one below the upper one; export the model again")

    @property
    def real_operands(self) -> np.ndarray:
        """float64[4], the operands of the machine: lowest, -1, -highest and -1; 0 for no limit."""
        return np.array([self.lowest or 0.0, -1.0, -(self.highest or 0.0), -1.0])

    @property
    def operands(self) -> np.ndarray:
        """uint16[4], the same as binary16 patterns."""
        with np.errstate(over="ignore"):
            return to_bits(self.real_operands)

    def stored(self) -> "Limited":
        """The layer with the numbers that the machine holds."""
        lowest, _, highest, _ = to_real(self.operands).tolist()
        return replace(self, lowest=None if self.lowest is None else lowest,
                       highest=None if self.highest is None else -highest)

    @property
    def outputs(self) -> int:
        return self.inputs

    def run(self, x, lengths, sums=IntegerProduct.totals):
        lowest, minus, highest, _ = (np.broadcast_to(one, x[0].shape) for one in self.operands)
        made = x[0] if self.lowest is None else float16.maximum(x[0], lowest)
        if self.highest is not None:
            made = float16.mul(float16.maximum(float16.mul(made, minus), highest), minus)
        return Trace(outputs=made)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TanhGelu(Layer):
    """GELU by its approximation: x * sigmoid(x * (line + cube * x**2)), rounded after each operation.

    Attributes:
        name:   Name of the layer, unique in its model.
        inputs: Number of elements of the tensor.
        line:   Factor of x, which the machine rounds to binary16.
        cube:   Factor of x**3, which the machine rounds to binary16.
    """

    name: str
    inputs: int
    line: float = Gelu.LINE
    cube: float = Gelu.CUBE

    title = "gelu"
    keeps_shape = True

    @property
    def outputs(self) -> int:
        return self.inputs

    @property
    def factors(self) -> np.ndarray:
        """uint16[2], the factors of x and of x**3 as binary16 patterns."""
        return to_bits(np.array([self.line, self.cube]))

    def stored(self) -> "TanhGelu":
        """The layer with the factors that the machine holds."""
        line, cube = to_real(self.factors).tolist()
        return replace(self, line=line, cube=cube)

    def run(self, x, lengths, sums=IntegerProduct.totals):
        x, (line, cube) = x[0], (np.broadcast_to(factor, x[0].shape) for factor in self.factors)
        inner = float16.add(float16.mul(float16.mul(x, x), cube), line)
        return Trace(outputs=float16.mul(activate(Activation.SIGMOID, float16.mul(inner, x)), x))
