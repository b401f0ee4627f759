"""Operators of a quantised network in real numbers: what its quantisers do, without the machine's other roundings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import zip_longest

import numpy as np
from concord.net.arithmetic.windows import Window
from concord.net.cells.output_codes import output_codes
from concord.net.cells.real import RealOperations
from concord.net.ops.operator import Operator
from concord.net.ops.recurrent import Direction, Recurrence
from concord.net.ops.weighted import Convolution
from concord.net.quantize.recipe import Gates
from concord.spec.numbers.formats import Format

#: Gates without quantisers of their outputs.
PLAIN = Gates()
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
class QuantizedDirection(Direction):
    """A direction whose products have quantised results, or gates whose outputs have codes of measured ranges.

    Attributes:
        result_steps: float32[W or R, gate], the real value of one step of the codes of results; None for none.
        output_codes: int64[gates, 3], see `OutputCodes.record`; None for the codes of the curves.
    """

    result_steps: np.ndarray | None = None
    output_codes: np.ndarray | None = None

    def tensors(self):
        own = {"result_steps": self.result_steps, "output_codes": self.output_codes}
        return {**Direction.tensors(self), **{
            name: value.astype(np.float32) for name, value in own.items() if value is not None}}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class QuantizedRecurrence(Recurrence):
    """A recurrent layer with quantisers of its hidden vectors, of its products, and of the outputs of its gates.

    Attributes:
        hidden_codes:  The quantiser of what R multiplies.
        gates:         Bits of the outputs of gates, and whether biases are integers.
        result_format: Format of the codes of products, whose directions are `QuantizedDirection`; None for none.
        result_blocks: The quantiser of products in block floating point; None for none.
    """

    hidden_codes: Quantizer | None = None
    gates: Gates = PLAIN
    result_format: Format | None = None
    result_blocks: Quantizer | None = None

    def operations(self, parameters, x):
        return _Operations(self, parameters, x)


def simulated_recurrence(
    op: Recurrence, matrices: Sequence[Sequence[np.ndarray]], codes: Quantizer, hidden_codes: Quantizer,
    gates: Gates = PLAIN, result_format: Format | None = None, result_steps: Sequence[np.ndarray] = (),
    result_blocks: Quantizer | None = None, output_codes: Sequence[np.ndarray] = (),
) -> Operator:
    """A recurrent layer after quantisation, with the real numbers that W and R of each direction became."""
    directions = tuple(replace(one, input_weights=w.astype(np.float32), recurrent_weights=r.astype(np.float32))
                       for one, (w, r) in zip(op.directions, matrices, strict=True))
    own = [dict(zip(("result_steps", "output_codes"), both, strict=True)) for both in zip_longest(
        result_steps if result_format is not None else (), output_codes)]
    if own:
        directions = tuple(QuantizedDirection(**{item.name: getattr(one, item.name) for item in fields(one)}, **more)
                           for one, more in zip(directions, own, strict=True))
    inner = QuantizedRecurrence(cell=op.cell, directions=directions, reverse=op.reverse, first=op.first,
                                hidden_codes=hidden_codes, gates=gates, result_format=result_format,
                                result_blocks=result_blocks)
    return Enters(inner=inner, codes=codes)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PatchConvolution(Convolution):
    """A convolution with a quantiser of the patch at each position.

    Attributes:
        codes: The quantiser, from images to what `pixels` makes of them.
    """

    codes: Quantizer

    def real(self, x, lengths):
        sums = self.codes(x) @ np.moveaxis(self.weight, 1, -1).reshape(self.outputs, -1).T.astype(np.float64)
        positions = self.window.counts(*x.shape[2:])
        return (sums + self.bias).reshape(len(x), *positions, self.outputs).transpose(0, 3, 1, 2)


def pixels(x: np.ndarray, window: Window) -> np.ndarray:
    """The patch at each position of images, [samples * positions, pixels * channels], pixel by pixel."""
    seen = window.seen(window.bordered(x, 0.0)).transpose(0, 2, 3, 4, 5, 1)
    return seen.reshape(int(np.prod(seen.shape[:3])), -1)


class _Operations(RealOperations):
    """A cell's formula with the quantisers of a `QuantizedRecurrence`."""

    def __init__(self, layer: QuantizedRecurrence, parameters: dict[str, np.ndarray], x: np.ndarray):
        super().__init__(layer.cell, parameters, x)
        self._layer = layer

    def preactivation(self, gate, operand):
        if self._layer.result_blocks is None:
            return super().preactivation(gate, operand)
        bias = self._parameters["bias"][self._cell.index(gate)]
        of_x, of_h = RealOperations.input_product(self, gate), RealOperations.recurrent_product(
            self, gate, self._layer.hidden_codes(operand))
        return self._layer.result_blocks(of_x - bias + of_h) + bias

    def input_product(self, gate):
        whole, layer = super().input_product(gate), self._layer
        if layer.result_blocks is not None:
            bias = self._parameters["bias"][self._cell.index(gate)]
            return layer.result_blocks(whole - bias) + bias
        if layer.result_format is None:
            return whole
        bias = 0.0 if layer.gates.biases else self._parameters["bias"][self._cell.index(gate)]
        return self._quantized(whole - bias, 0, gate) + bias

    def recurrent_product(self, gate, operand):
        product = super().recurrent_product(gate, self._layer.hidden_codes(operand))
        if self._layer.result_blocks is not None:
            return self._layer.result_blocks(product)
        return product if self._layer.result_format is None else self._quantized(product, 1, gate)

    def _quantized(self, product, matrix: int, gate: str):
        """The numbers that the codes of a product stand for; its matrix is W (0) or R (1)."""
        step, fmt = self._parameters["result_steps"][matrix, self._cell.index(gate)], self._layer.result_format
        return np.clip(np.rint(product / step), fmt.lowest, fmt.highest) * step

    def output(self, gate, value):
        y = super().output(gate, value)
        codes = output_codes(self._cell, self._layer.gates.outputs, self._parameters.get("output_codes"))
        return codes[gate].quantized(y) if gate in codes else y
