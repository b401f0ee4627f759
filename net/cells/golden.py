"""A cell's formula in golden arithmetic: the machine's bits, and the operands that it computes with.

The layers are `IntegerRecurrent` and `BlockRecurrent` of `net.layers.recurrent`.
"""

from functools import cache

import numpy as np
from concord.golden.lib import float16
from concord.golden.mfu.multifunction import activate
from concord.net.arithmetic import integer, native_vectors
from concord.net.cells.cell import Cell, Operations


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
        cell, codes = self.layer.cell, self.layer.output_codes
        y = self.curve(cell.gates[cell.index(gate)].curve, value)
        return codes[gate].rounded(self, y) if gate in codes else y

    def vector(self, name):
        return self.layer.vectors[name]

    def add(self, a, b):
        return float16.add(a, b)

    def sub(self, a, b):
        return float16.sub(a, b)

    def mul(self, a, b):
        return float16.mul(a, b)

    def larger(self, a, b):
        return float16.maximum(a, b)

    def constant(self, number, *, bound=False):
        return np.float16(number).view(np.uint16)

    def curve(self, kind, value):
        return activate(kind, value)

    def _gate(self, what: str, gate: str, operand: np.ndarray, product, gates=None) -> np.ndarray:
        """One gate of a tall product, which is computed once for all gates that multiply the same operand."""
        gates = [one.name for one in self.layer.cell.gates] if gates is None else gates
        seen, tall = self._made.get(what, (None, None))
        if seen is not operand:
            tall = product().reshape(len(operand), len(gates), self.layer.outputs)
            self._made[what] = operand, tall
        return tall[:, gates.index(gate)]


class IntegerOperations(GoldenOperations):
    """Products of integer codes: W x is scaled, biased and rounded before R h is added.

    Args:
        sums: From a product and its codes to its totals.
    """

    def __init__(self, layer, x, sums):
        super().__init__(layer, x)
        self._sums = sums

    def preactivation(self, gate, operand):
        return float16.add(self.recurrent_product(gate, operand), self.input_product(gate))

    def input_product(self, gate):
        layer, k = self.layer, self.layer.cell.index(gate)
        a = self._gate("input", gate, self.x, lambda: self._product(
            layer.input_product(), self.x, layer.input_quant_scale))
        scaled = float16.mul(a, layer.input_scale[k])
        return scaled if layer.start is not None else float16.add(scaled, layer.bias[k])

    def recurrent_product(self, gate, operand):
        layer, k = self.layer, self.layer.cell.index(gate)
        gates = next(gates for gates in operands(layer.cell) if gate in gates)
        a = self._gate("recurrent", gate, operand, lambda: self._product(
            layer.recurrent_product(gates), operand, layer.hidden_quant_scale), gates)
        return float16.mul(a, layer.recurrent_scale[k])

    def _product(self, product, operand, scale):
        codes = integer.codes(operand, self.layer.input_format, scale=scale)
        a, fmt = product.rounded(self._sums(product, codes[None])), self.layer.result_format
        return a if fmt is None else float16.from_integer(integer.codes(a, fmt), 0)


class BlockOperations(GoldenOperations):
    """Products in block floating point: the sum of W x and R h is exact and rounded once."""

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
        return *_tall(self.layer.input_mantissas, self.layer.input_exponents), self.x

    def _recurrent(self, operand):
        return *_tall(self.layer.recurrent_mantissas, self.layer.recurrent_exponents), operand

    def _product(self, *parts):
        layer = self.layer
        product = native_vectors.product(parts, layer.weights_format, layer.input_format, layer.block)
        if not layer.quantized_results:
            return product
        return native_vectors.quantized(product.reshape(-1, layer.outputs), layer.input_format, layer.block)


def _tall(*stacked: np.ndarray) -> list[np.ndarray]:
    """Stack the gates' rows into one matrix: [gates, rows, columns] becomes [gates * rows, columns]."""
    return [gates.reshape(-1, gates.shape[-1]) for gates in stacked]


@cache
def operands(cell: Cell) -> tuple[tuple[str, ...], ...]:
    """Names of gates whose R multiplies the same vector, for each such vector in the order of the formula."""
    recorder = _Recorder()
    cell.step(recorder, *(object() for _ in cell.states))
    return tuple(tuple(gates) for _, gates in recorder.found)


class _Recorder(Operations[object]):
    """Runs a formula on symbols, which record the gates that multiply each of them.

    Attributes:
        found: Each vector that R multiplies, and the gates.
    """

    def __init__(self):
        self.found: list[tuple[object, list[str]]] = []

    def preactivation(self, gate, operand):
        return self.recurrent_product(gate, operand)

    def recurrent_product(self, gate, operand):
        gates = next((gates for vector, gates in self.found if vector is operand), None)
        if gates is None:
            gates = []
            self.found.append((operand, gates))
        gates.append(gate)
        return object()

    def input_product(self, gate):
        return object()

    def output(self, gate, value):
        return object()

    def vector(self, name):
        return object()

    def add(self, a, b):
        return object()

    def sub(self, a, b):
        return object()

    def mul(self, a, b):
        return object()

    def larger(self, a, b):
        return object()

    def constant(self, number, *, bound=False):
        return object()

    def curve(self, kind, value):
        return object()
