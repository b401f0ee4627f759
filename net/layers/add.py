"""Sums of two tensors."""

from dataclasses import dataclass

from concord.golden.lib import float16
from concord.golden.mfu.multifunction import activate
from concord.net.arithmetic.integer import IntegerProduct
from concord.net.layers.layer import Layer, Trace
from concord.spec.numbers.activation import Activation


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

    @property
    def takes(self) -> tuple[int, int]:
        return self.inputs, self.inputs

    @property
    def outputs(self) -> int:
        return self.inputs

    def run(self, x, lengths, sums=IntegerProduct.totals):
        return Trace(outputs=activate(self.activation, float16.add(*x)))
