"""Functions of single numbers: activation functions and their piecewise linear forms."""

from dataclasses import dataclass
from math import erf
from typing import ClassVar

import numpy as np
from concord.golden.mfu.multifunction import CURVES
from concord.net.ops import checks
from concord.net.ops.operator import Operator, Takes
from concord.spec.numbers.activation import Activation

LARGEST = 65504.0  #: Largest number of binary16.


class Pointwise(Operator):
    """A function of each number alone.

    Attributes:
        activation: The machine's activation function that computes it, or None where there is none.
        positive:   Whether no result is below zero.
    """

    __slots__ = ()

    takes = Takes.EITHER
    activation: ClassVar[Activation | None] = None
    positive: ClassVar[bool] = False

    def real(self, x, lengths):
        with np.errstate(all="ignore"):  # as on the machine, 1 / 0 is infinite
            return CURVES[self.activation](x)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Relu(Pointwise):
    """y = max(0, min(ceiling, x)).

    Attributes:
        ceiling: Largest result, or None.
    """

    ceiling: float | None = None

    kind = "relu"
    activation = Activation.RELU
    positive = True

    def __post_init__(self):
        if self.ceiling is not None:
            checks.number(ceiling=self.ceiling)

    def real(self, x, lengths):
        return np.clip(x, 0, self.ceiling)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sigmoid(Pointwise):
    """y = 1 / (1 + exp(-x))."""

    kind = "sigmoid"
    activation = Activation.SIGMOID
    positive = True


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Tanh(Pointwise):
    """y = tanh(x)."""

    kind = "tanh"
    activation = Activation.TANH


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Exp(Pointwise):
    """y = exp(x)."""

    kind = "exp"
    activation = Activation.EXP
    positive = True


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Reciprocal(Pointwise):
    """y = 1 / x."""

    kind = "reciprocal"
    activation = Activation.RECIPROCAL


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rsqrt(Pointwise):
    """y = 1 / sqrt(x)."""

    kind = "rsqrt"
    activation = Activation.RSQRT
    positive = True


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sqrt(Pointwise):
    """y = sqrt(x)."""

    kind = "sqrt"
    activation = Activation.SQRT
    positive = True


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LeakyRelu(Pointwise):
    """y = max(x, slope * x).

    Attributes:
        slope: Slope of negative numbers, 0 to 1.
    """

    slope: float = 0.01

    kind = "leaky_relu"

    def __post_init__(self):
        checks.number(slope=self.slope)
        if not 0 <= self.slope <= 1:
            raise ValueError(f"slope = {self.slope:g} is out of range: it lies in 0..1")

    def real(self, x, lengths):
        return np.maximum(x, self.slope * x)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Gelu(Pointwise):
    """y = x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2, or exactly x * (1 + erf(x / sqrt(2))) / 2.

    As (1 + tanh(u)) / 2 is sigmoid(2 * u), the former is x * sigmoid(x * (LINE + CUBE * x**2)). The machine computes
    the latter in this form, too, with the factors that come nearest to it: they differ by at most 0.00028.

    Attributes:
        exact:   Whether it stands for the one with the error function.
        nearest: Whether this one is computed as the machine does; the float network beside a model has it so.
    """

    exact: bool = False
    nearest: bool = False

    kind = "gelu"
    LINE: ClassVar[float] = (8 / np.pi) ** 0.5
    CUBE: ClassVar[float] = 0.044715 * LINE
    EXACT: ClassVar[tuple[float, float]] = (1.60031416, 0.06940179)

    @property
    def factors(self) -> tuple[float, float]:
        """The factors of x and of x**3 with which the machine computes it."""
        return self.EXACT if self.exact else (self.LINE, self.CUBE)

    def real(self, x, lengths):
        if self.exact and not self.nearest:
            return x * (1 + _erf(x * 0.5**0.5)) / 2
        line, cube = self.factors
        with np.errstate(over="ignore"):  # far below zero, the sigmoid is 0
            return x * CURVES[Activation.SIGMOID](x * (line + cube * x * x))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class HardSigmoid(Pointwise):
    """y = max(0, min(ceiling, alpha * x + beta))."""

    alpha: float = 0.2
    beta: float = 0.5
    ceiling: float = 1.0

    kind = "hard_sigmoid"
    positive = True

    def __post_init__(self):
        checks.number(alpha=self.alpha, beta=self.beta, ceiling=self.ceiling)

    def real(self, x, lengths):
        return np.clip(self.alpha * x + self.beta, 0, self.ceiling)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Limits(Pointwise):
    """y = min(max(x, lowest), highest); None is no limit.

    Raises:
        ValueError: there is no limit, one is no number, or they leave no range.
    """

    lowest: float | None = None
    highest: float | None = None

    kind = "limits"

    def __post_init__(self):
        given = {name: value for name, value in (("lowest", self.lowest), ("highest", self.highest))
                 if value is not None}
        checks.number(**given)
        if not given or len(given) == 2 and not self.lowest < self.highest:
            raise ValueError(f"lowest {self.lowest}, highest {self.highest}: one limit at least is needed, and the "
                             "lower one below the upper one")

    def real(self, x, lengths):
        return np.clip(x, self.lowest, self.highest)


def limits(lowest: float, highest: float) -> "Relu | Limits | None":
    """The operator that limits numbers, a relu where it can be; None where no number of binary16 is beyond the limits.

    Args:
        lowest, highest: The limits; infinity for none.

    Raises:
        ValueError: they leave one number of binary16 at most.
    """
    if not lowest < highest or lowest > LARGEST or highest < -LARGEST:
        raise ValueError(f"it limits numbers to {lowest:g}..{highest:g}, which leaves one number of binary16 at most")
    low, high = (None if abs(limit) > LARGEST else float(limit) for limit in (lowest, highest))
    if low is None and high is None:
        return None
    return Relu(ceiling=high) if low == 0 else Limits(lowest=low, highest=high)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class HardSwish(Pointwise):
    """y = x * max(0, min(1, x / 6 + 1/2))."""

    kind = "hard_swish"

    def real(self, x, lengths):
        return x * np.clip(x / 6 + 0.5, 0, 1)


def _erf(x: np.ndarray) -> np.ndarray:
    """The error function, which numpy does not have."""
    return np.frompyfunc(erf, 1, 1)(x).astype(x.dtype)


#: Operators that are activation functions of the machine.
ACTIVATIONS = (Relu, Sigmoid, Tanh, Exp, Reciprocal, Rsqrt, Sqrt)
