"""The softmax of a network's result, at its end."""

from dataclasses import dataclass

from concord.golden.mfu.softmax import softmax
from concord.net.arithmetic.integer import IntegerProduct
from concord.net.layers.layer import Layer, Trace
from concord.spec.numbers.softmax import MOST_ELEMENTS


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Softmax(Layer):
    """The softmax of the layer before it: exp(x_i) / sum of exp(x_j), which golden defines to the bit.

    Attributes:
        name:   Name of the layer, unique in its model.
        inputs: Number of elements.
    """

    name: str
    inputs: int

    title = "softmax"
    ends = True

    def __post_init__(self):
        if not 1 <= self.inputs <= MOST_ELEMENTS:
            raise ValueError(f"layer {self.name!r}: a softmax has 1 to {MOST_ELEMENTS} elements, not {self.inputs}")

    @property
    def outputs(self) -> int:
        return self.inputs

    def run(self, x, lengths, sums=IntegerProduct.totals):
        return Trace(outputs=softmax(x[0]))



def with_softmax(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """The layers of a model with the softmax of the result at the end."""
    name, taken = "softmax", {layer.name for layer in layers}
    while name in taken:
        name += "_"
    return *layers, Softmax(name=name, inputs=layers[-1].outputs)
