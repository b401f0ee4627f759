"""Concatenations of tensors, or of the vectors of sequences at each time step."""

from dataclasses import dataclass

import numpy as np
from concord.net.arithmetic.integer import IntegerProduct
from concord.net.layers.layer import Layer, Trace


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Concat(Layer):
    """Concatenates tensors.

    Attributes:
        name:  Name of the layer, unique in its model.
        sizes: Number of elements of each tensor.
    """

    name: str
    sizes: tuple[int, ...]

    title = "concatenation"

    @property
    def takes(self) -> tuple[int, ...]:
        return self.sizes

    @property
    def outputs(self) -> int:
        return sum(self.sizes)

    def run(self, x, lengths, sums=IntegerProduct.totals):
        return Trace(outputs=np.concatenate(x, axis=1))



@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SequenceConcat(Concat):
    """Concatenates the vectors of sequences at each time step. Its result is the vector of each sample's last step."""

    title = "concatenation of sequences"
    sequence = True

    def run(self, x, lengths, sums=IntegerProduct.totals):
        return self._joined(x, lengths)

    def _joined(self, x, lengths):
        hidden = np.concatenate(x, axis=2)
        last = np.full(len(hidden), hidden.shape[1]) if lengths is None else np.asarray(lengths)
        return Trace(outputs=hidden[np.arange(len(hidden)), last - 1], hidden=hidden)
