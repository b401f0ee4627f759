"""A cell's formula in golden arithmetic: the machine's bits.

The layers have the fields of `model.layers.LSTM` and `BlockLSTM`, and beside them their `cell` and its `vectors`.
"""

import numpy as np
from concord.golden.lib import float16
from concord.golden.mfu import activation
from concord.golden.mvm import quantizer
from concord.model import products
from concord.model.cells.cell import Operations


class GoldenOperations(Operations[np.ndarray]):
    """Operations on uint16[samples, cells], binary16 bit patterns; each rounds once.

    Args:
        layer: A recurrent layer.
        x:     uint16[samples, inputs], its input at this time step.
    """

    def __init__(self, layer, x: np.ndarray):
        self.layer, self.x = layer, x
        self._made: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def output(self, gate, value):
        cell, bits = self.layer.cell, self.layer.gate_bits
        y = self.curve(cell.gates[cell.index(gate)].curve, value)
        if not bits:
            return y
        centre = np.float16(cell.gates[cell.index(gate)].centre(bits)).view(np.uint16)
        return float16.sub(float16.add(y, centre), centre)

    def vector(self, name):
        return self.layer.vectors[name]

    def add(self, a, b):
        return float16.add(a, b)

    def sub(self, a, b):
        return float16.sub(a, b)

    def mul(self, a, b):
        return float16.mul(a, b)

    def curve(self, kind, value):
        return activation.apply(kind, value)

    def _gate(self, what: str, gate: str, operand: np.ndarray, product) -> np.ndarray:
        """One gate of a tall product, which is computed once for all gates that multiply the same operand."""
        seen, tall = self._made.get(what, (None, None))
        if seen is not operand:
            tall = product().reshape(len(operand), len(self.layer.cell.gates), self.layer.outputs)
            self._made[what] = operand, tall
        return tall[:, self.layer.cell.index(gate)]


class IntegerOperations(GoldenOperations):
    """Products of integer codes: W x is scaled, biased and rounded before R h is added.

    Attributes:
        codes: int64[samples, inputs], the codes of x.
    """

    def __init__(self, layer, x):
        super().__init__(layer, x)
        self.codes = self._codes(x, layer.input_quant_scale)

    def _codes(self, values, scale):
        return quantizer.quantize_integer(products.affine(values, scale, None), self.layer.input_format, unsigned=False)

    def preactivation(self, gate, operand):
        return float16.add(self.recurrent_product(gate, operand), self.input_product(gate))

    def input_product(self, gate):
        layer, k = self.layer, self.layer.cell.index(gate)
        a = self._gate("input", gate, self.x, lambda: products.integer_product(
            products.tall(layer.input_weights), self.codes, layer.input_p))
        return float16.add(float16.mul(a, layer.input_scale[k]), layer.bias[k])

    def recurrent_product(self, gate, operand):
        layer, k = self.layer, self.layer.cell.index(gate)
        a = self._gate("recurrent", gate, operand, lambda: products.integer_product(
            products.tall(layer.recurrent_weights), self._codes(operand, layer.hidden_quant_scale), layer.recurrent_p))
        return float16.mul(a, layer.recurrent_scale[k])


class BlockOperations(GoldenOperations):
    """Products in block floating point: the sum of W x and R h is exact and rounded once."""

    codes = None

    def preactivation(self, gate, operand):
        product = self._gate("both", gate, operand, lambda: self._product(self._inputs, self._recurrent(operand)))
        return float16.add(product, self._bias(gate))

    def input_product(self, gate):
        return float16.add(self._gate("input", gate, self.x, lambda: self._product(self._inputs)), self._bias(gate))

    def recurrent_product(self, gate, operand):
        return self._gate("recurrent", gate, operand, lambda: self._product(self._recurrent(operand)))

    def _bias(self, gate):
        return self.layer.bias[self.layer.cell.index(gate)]

    @property
    def _inputs(self):
        return *map(products.tall, (self.layer.input_mantissas, self.layer.input_exponents)), self.x

    def _recurrent(self, operand):
        return *map(products.tall, (self.layer.recurrent_mantissas, self.layer.recurrent_exponents)), operand

    def _product(self, *parts):
        return products.block_product(parts, self.layer.weights_format, self.layer.input_format, self.layer.block)
