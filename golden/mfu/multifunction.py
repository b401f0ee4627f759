"""The point-wise operations of a multi-function unit: each on binary16 patterns, and on real numbers."""

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import numpy as np
from concord.golden.lib import float16
from concord.golden.lib.float16 import maximum
from concord.golden.mfu import activation
from concord.spec.isa.operations import ACTIVATIONS, Operation, implemented
from concord.spec.numbers.activation import Activation


class PointWise(NamedTuple):
    """What an operation computes of the chain's value, and of the second operand if it takes one.

    Attributes:
        bits: The machine's function, of uint16[...] bit patterns; it rounds once.
        real: The function of real numbers that it rounds.
    """

    bits: Callable
    real: Callable


def _sigmoid(x):
    with np.errstate(over="ignore"):  # far below zero, exp(-x) is infinite and the result 0
        return 1 / (1 + np.exp(-x))


#: The functions of each operation; those of a swapped operation take the operand first.
FUNCTIONS = implemented({
    Operation.VV_ADD: PointWise(float16.add, np.add),
    Operation.VV_A_SUB_B: PointWise(float16.sub, np.subtract),
    Operation.VV_B_SUB_A: PointWise(float16.sub, np.subtract),
    Operation.VV_MAX: PointWise(float16.maximum, np.maximum),
    Operation.V_RELU: PointWise(float16.relu, lambda x: np.maximum(x, 0)),
    Operation.V_SIGM: PointWise(activation.sigmoid, _sigmoid),
    Operation.V_TANH: PointWise(activation.tanh, np.tanh),
    Operation.VV_MUL: PointWise(float16.mul, np.multiply),
    Operation.V_EXP: PointWise(activation.exp, np.exp),
    Operation.V_RECIP: PointWise(activation.reciprocal, np.reciprocal),
    Operation.V_RSQRT: PointWise(activation.rsqrt, lambda x: 1 / np.sqrt(x)),
    Operation.V_SQRT: PointWise(activation.sqrt, np.sqrt),
})
#: The function of each activation in real numbers.
CURVES = {Activation.NONE: lambda x: x} | {kind: FUNCTIONS[each].real for kind, each in ACTIVATIONS.items()}


def compute(operation: Operation, value, operand=None):
    """Compute one point-wise operation, rounded once.

    Args:
        value:   uint16[...], bit patterns of the chain's value.
        operand: uint16[...] in the shape of `value`; ignored if the operation takes no second operand.

    Returns:
        uint16[...] bit patterns in the shape of `value`.
    """
    return _applied(FUNCTIONS[operation].bits, operation, value, operand)


def compute_real(operation: Operation, value, operand=None):
    """Compute one point-wise operation on real numbers of one shape, as `compute` does on patterns."""
    return _applied(FUNCTIONS[operation].real, operation, value, operand)


def activate(kind: Activation, value):
    """An activation function of uint16[...] bit patterns."""
    return value if kind is Activation.NONE else compute(ACTIVATIONS[kind], value)


def _applied(function: Callable, operation: Operation, value, operand):
    if not operation.operand:
        return function(value)
    return function(operand, value) if operation.swapped else function(value, operand)


def pool_max(pixels: np.ndarray) -> np.ndarray:
    """The running `vv_max` over the pixels of each window, in order. A single pixel passes as it is, NaN patterns too.

    Args:
        pixels: uint16[..., pixels, lanes], binary16 patterns.

    Returns:
        uint16[..., lanes].
    """
    return reduce(maximum, np.moveaxis(pixels, -2, 0))
