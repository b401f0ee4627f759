"""Operators of a quantised network in real numbers: what its quantisers do, without the machine's other roundings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from concord.net.arithmetic.windows import Window
from concord.net.cells.real import RealOperations
from concord.net.ops.operator import Operator
from concord.net.ops.recurrent import Recurrence
from concord.net.ops.weighted import Convolution
from concord.spec.numbers.activation import Activation

#: From real numbers to the numbers that their codes or blocks stand for.
Quantizer = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Enters(Operator):
    """An operator after a quantiser of its input.

    Attributes:
        inner: The operator.
        codes: The quantiser.
    """

    inner: Operator
    codes: Quantizer

    def result(self, *inputs):
        return self.inner.result(*inputs)

    def real(self, *inputs, lengths):
        return self.inner.real(*map(self.codes, inputs), lengths=lengths)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class QuantizedRecurrence(Recurrence):
    """A recurrent layer with quantisers of its hidden vectors, and of the outputs of its gates.

    Attributes:
        hidden_codes: The quantiser of what R multiplies.
        gate_bits:    Bits of the outputs of gates; 0 for all.
    """

    hidden_codes: Quantizer | None = None
    gate_bits: int = 0

    def operations(self, parameters, x):
        return _Operations(self, parameters, x)


def simulated_recurrence(
    op: Recurrence, matrices: Sequence[Sequence[np.ndarray]], codes: Quantizer, hidden_codes: Quantizer,
    gate_bits: int = 0,
) -> Operator:
    """A recurrent layer after quantisation, with the real numbers that W and R of each direction became."""
    directions = tuple(replace(one, input_weights=w.astype(np.float32), recurrent_weights=r.astype(np.float32))
                       for one, (w, r) in zip(op.directions, matrices, strict=True))
    inner = QuantizedRecurrence(cell=op.cell, directions=directions, reverse=op.reverse, first=op.first,
                                hidden_codes=hidden_codes, gate_bits=gate_bits)
    return Enters(inner=inner, codes=codes)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PatchConvolution(Convolution):
    """A convolution with a quantiser of the patch at each place.

    Attributes:
        codes: The quantiser, from images to what `pixels` makes of them.
    """

    codes: Quantizer

    def real(self, x, lengths):
        sums = self.codes(x) @ np.moveaxis(self.weight, 1, -1).reshape(self.outputs, -1).T.astype(np.float64)
        places = self.window.counts(*x.shape[2:])
        return (sums + self.bias).reshape(len(x), *places, self.outputs).transpose(0, 3, 1, 2)


def pixels(x: np.ndarray, window: Window) -> np.ndarray:
    """The patch at each place of images, [samples * places, pixels * channels], pixel by pixel with all channels."""
    seen = window.seen(window.bordered(x, 0.0)).transpose(0, 2, 3, 4, 5, 1)
    return seen.reshape(int(np.prod(seen.shape[:3])), -1)


class _Operations(RealOperations):
    """A cell's formula with the quantisers of a `QuantizedRecurrence`."""

    def __init__(self, layer: QuantizedRecurrence, parameters: dict[str, np.ndarray], x: np.ndarray):
        super().__init__(layer.cell, parameters, x)
        self._layer = layer

    def recurrent_product(self, gate, operand):
        return super().recurrent_product(gate, self._layer.hidden_codes(operand))

    def output(self, gate, value):
        y, bits = super().output(gate, value), self._layer.gate_bits
        if not bits:
            return y
        signed = self._cell.gates[self._cell.index(gate)].curve is Activation.TANH
        steps = 2.0 ** (bits - signed)
        return np.clip(np.rint(y * steps), -steps, steps) / steps
