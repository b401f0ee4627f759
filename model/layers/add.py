"""Sums of two tensors."""

from dataclasses import dataclass

from concord.golden.lib import float16
from concord.golden.mfu import activation
from concord.model.arithmetic.integer import IntegerProduct
from concord.model.cells.real import CURVES
from concord.model.layers.layer import Layer, Trace
from concord.spec.activation import Activation


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Add(Layer):
    """The sum of two tensors, rounded.

    Attributes:
        name:       Name of the layer, unique in its model.
        inputs:     Number of elements of each tensor.
        activation: Activation function of the result.
    """

    name: str
    inputs: int
    activation: Activation = Activation.NONE

    title = "sum"
    comparable = True

    @property
    def takes(self) -> tuple[int, int]:
        return self.inputs, self.inputs

    @property
    def outputs(self) -> int:
        return self.inputs

    def run(self, x, lengths, sums=IntegerProduct.totals):
        return Trace(outputs=activation.apply(self.activation, float16.add(*x)))

    def run_real(self, x, lengths, relu):
        return Trace(outputs=CURVES[Activation.RELU if relu else self.activation](x[0] + x[1]))
