"""Recurrent layers: a cell's formula at each time step, on integer codes or in block floating point."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from concord.net.arithmetic.integer import IntegerProduct
from concord.net.cells.cell import Cell
from concord.net.cells.golden import BlockOperations, IntegerOperations, operands
from concord.net.cells.output_codes import COARSEST, FINEST, OutputCodes, output_codes
from concord.net.cells.real import unrolled
from concord.net.layers import checks
from concord.net.layers.layer import Layer, Sums, Trace, no_integers
from concord.net.ops.recurrent import Recurrence
from concord.spec.numbers.formats import Format


class Recurrent(Layer):
    """What recurrent layers share, whatever their cell and their arithmetic."""

    __slots__ = ()

    sequence = True

    @property
    def first_states(self) -> tuple[np.ndarray, ...]:
        """uint16[outputs] for each state before the first time step, in the cell's order."""
        return tuple(self.initial[name] for name in self.cell.states)

    @property
    def outputs(self) -> int:
        return self.bias.shape[1]

    @property
    def output_codes(self) -> Mapping[str, OutputCodes]:
        """The codes of each gate's output by the gate's name; empty where outputs keep all bits of binary16."""
        return output_codes(self.cell, self.gate_bits, self.gate_codes)

    def _check_gates(self):
        if self.gate_bits and not 2 <= self.gate_bits <= 9:
            raise ValueError(f"layer {self.name!r}, gate_bits: 2 to 9, or 0 for none, not {self.gate_bits}")
        checks.array(self, "gate_codes", np.int64, (len(self.cell.gates), 3), optional=True)
        if self.gate_codes is None:
            self.cell.check_gate_bits(self.gate_bits)
        for gate, codes in self.output_codes.items():
            most = 1 << self.gate_bits
            if self.gate_codes is not None and not (FINEST <= codes.exponent <= COARSEST and 0 < codes.count <= most):
                raise ValueError(f"layer {self.name!r}, gate_codes: {codes.record} of gate {gate} are no codes of "
                                 f"{self.gate_bits} bits")

    def run(self, x, lengths, sums=IntegerProduct.totals):
        return self.unroll(x[0], lengths, self.first_states, lambda now: self.operations(now, sums))

    def unroll(self, x: np.ndarray, lengths: np.ndarray | None, first: tuple[np.ndarray, ...], operations) -> Trace:
        """All time steps; a sample keeps its state when its sequence has ended.

        Args:
            x:          [samples, time, inputs].
            lengths:    int[samples], time steps of each sample; None for all of them.
            first:      [outputs] for each state.
            operations: From the inputs [samples, inputs] of one time step to what the cell's formula computes with.
        """
        lengths = np.full(len(x), x.shape[1]) if lengths is None else np.asarray(lengths)
        hidden, states = unrolled(self.cell, operations, x, lengths, first, reverse=self.reverse)
        return Trace(outputs=states[0], hidden=hidden, states=states)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class IntegerRecurrent(Recurrent):
    """Integer recurrent layer, one pair of scales for each gate; gates lie in the order of the cell.

    a_W = binary16((input_weights @ q) * 2**-input_p) and a_R likewise, from the codes q of x and of h;
    u = a_W * input_scale + bias, g = a_R * recurrent_scale + u; the cell's formula does the rest. Each operation rounds
    to binary16. With integer biases, a_W = binary16((start + input_weights @ q) * 2**-input_p), u = a_W * input_scale,
    and `bias` is zero. Codes are signed, those of x * input_quant_scale and of h * hidden_quant_scale. Where the gates'
    outputs are quantised as well, each becomes a whole number of steps, see `OutputCodes`. With a `result_format`,
    a_W and a_R are clip(rint(a)) to its codes, before anything else works on them.

    Attributes:
        name:               Unique in its model.
        cell:               The cell.
        weights_format:     Format of both weight matrices; one bit wider than they were quantised to if asymmetric.
        input_format:       Format of the codes of x and h.
        input_weights:      int16[gates, outputs, inputs], W.
        recurrent_weights:  int16[gates, outputs, outputs], R.
        input_p:            Right shift of the product with W in bits, -32..31: all gates are one product.
        recurrent_p:        The same for R.
        input_scale:        uint16[gates, outputs].
        recurrent_scale:    uint16[gates, outputs].
        bias:               uint16[gates, outputs].
        input_quant_scale:  uint16[inputs], or None where x already arrives in steps of the code.
        hidden_quant_scale: uint16[outputs].
        initial:            uint16[outputs] for each state of the cell by its name, before the first time step.
        vectors:            uint16[outputs] for each of the cell's own vectors by its name.
        gate_bits:          Width of the gates' outputs, 2 to 9; 0 leaves them as they are.
        gate_codes:         int64[gates, 3], exponent of the step, lowest and highest code of each gate's output; None
            for the codes of its curve.
        reverse:            Whether it begins with a sequence's last time step. The hidden vectors of all steps lie in
            the order of the sequence all the same.
        start:              int64[gates, outputs], the integer biases, in steps of the product with W; None for biases
            in binary16.
        result_format:      Format of the signed codes that the results of both products become, or None for binary16.
        ranges:             Smallest and largest values by name, see `net.ranges.measured`.
        real:               What the lowering started from ("input_steps", "recurrent_steps", "bias", "input"), and from
            quantisation, for each gate, zero points that the weights contain ("input_zeros", "recurrent_zeros":
            weights = q + z).
        float_operator:     See `Layer`.
    """

    name: str
    cell: Cell
    weights_format: Format
    input_format: Format
    input_weights: np.ndarray
    recurrent_weights: np.ndarray
    input_p: int
    recurrent_p: int
    input_scale: np.ndarray
    recurrent_scale: np.ndarray
    bias: np.ndarray
    input_quant_scale: np.ndarray | None
    hidden_quant_scale: np.ndarray
    initial: Mapping[str, np.ndarray]
    vectors: Mapping[str, np.ndarray] = field(default_factory=dict)
    gate_bits: int = 0
    reverse: bool = False
    start: np.ndarray | None = None
    result_format: Format | None = None
    gate_codes: np.ndarray | None = None
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    real: Mapping[str, np.ndarray] = field(default_factory=dict)
    float_operator: Recurrence | None = None

    def __post_init__(self):
        gates, hidden, inputs = checks.gates_shape(self, "input_weights")
        checks.array(self, "start", np.int64, (gates, hidden), optional=True)
        dtype = self.weights_format.dtype
        checks.array(self, "input_weights", dtype, (gates, hidden, inputs), mantissas=self.weights_format)
        checks.array(self, "recurrent_weights", dtype, (gates, hidden, hidden), mantissas=self.weights_format)
        for name in "input_scale", "recurrent_scale", "bias":
            checks.array(self, name, np.uint16, (gates, hidden))
        checks.array(self, "input_quant_scale", np.uint16, (inputs,), optional=True)
        checks.array(self, "hidden_quant_scale", np.uint16, (hidden,))
        checks.vectors(self, "initial", self.cell.states, hidden)
        checks.vectors(self, "vectors", self.cell.vectors, hidden)
        checks.right_shift(self, "input_p")
        checks.right_shift(self, "recurrent_p")
        checks.real(self)
        self._check_gates()

    @property
    def title(self) -> str:
        return f"{self.cell.title}, integer"

    @property
    def inputs(self) -> int:
        return self.input_weights.shape[2]

    def operations(self, x: np.ndarray, sums: Sums) -> IntegerOperations:
        """What the cell's formula computes with in one time step."""
        return IntegerOperations(self, x, sums)

    @property
    def multiplications(self) -> int:
        return self.input_weights.size + self.recurrent_weights.size

    def products(self):
        return self.input_product(), *map(self.recurrent_product, operands(self.cell))

    def input_product(self) -> IntegerProduct:
        """W x of all gates."""
        return self._product("input", self.input_weights, self.input_p, self.start)

    def recurrent_product(self, gates: tuple[str, ...]) -> IntegerProduct:
        """R of the gates that multiply the same vector."""
        chosen = [self.cell.index(gate) for gate in gates]
        name = "recurrent" if len(gates) == len(self.cell.gates) else f"recurrent {' '.join(gates)}"
        return self._product(name, self.recurrent_weights[chosen], self.recurrent_p)

    def _product(self, name: str, weights: np.ndarray, p: int, start: np.ndarray | None = None) -> IntegerProduct:
        tall = weights.reshape(1, -1, weights.shape[-1])
        return IntegerProduct(
            name=f"{self.name}, {name}",
            weights=tall,
            start=np.zeros(tall.shape[:2], np.int64) if start is None else start.reshape(tall.shape[:2]),
            p=p,
            input_format=self.input_format,
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockRecurrent(Recurrent):
    """Block floating point recurrent layer: g = binary16([W R] @ [x h]) + bias, then the cell's formula.

    x and h begin a native vector each, so no block holds elements of both; the sum over both is exact and rounded once.
    With `quantized_results`, the products of each gate become blocks of `input_format` before the bias is added.

    Attributes:
        name:                 Unique in its model.
        cell:                 The cell.
        weights_format:       Format of both weight matrices.
        input_format:         Format that x and h are quantised to.
        block:                The native dimension that the weights were quantised for.
        input_mantissas:      int16[gates, outputs, inputs].
        input_exponents:      int8[gates, outputs, ceil(inputs / block)].
        recurrent_mantissas:  int16[gates, outputs, outputs].
        recurrent_exponents:  int8[gates, outputs, ceil(outputs / block)].
        bias:                 uint16[gates, outputs].
        initial:              The states before the first time step, see `IntegerRecurrent`.
        vectors:              The cell's own vectors, see `IntegerRecurrent`.
        reverse:              Whether the layer begins with the last time step.
        quantized_results:    Whether the results of products become blocks before anything else works on them.
        gate_bits:            Width of the gates' outputs, see `IntegerRecurrent`.
        gate_codes:           The codes of the gates' outputs, see `IntegerRecurrent`.
        ranges:               Ranges of values by name, see `IntegerRecurrent`.
        real:                 Real numbers of training, see `IntegerRecurrent`; there are none now.
        float_operator:       See `Layer`.
    """

    name: str
    cell: Cell
    weights_format: Format
    input_format: Format
    block: int
    input_mantissas: np.ndarray
    input_exponents: np.ndarray
    recurrent_mantissas: np.ndarray
    recurrent_exponents: np.ndarray
    bias: np.ndarray
    initial: Mapping[str, np.ndarray]
    vectors: Mapping[str, np.ndarray] = field(default_factory=dict)
    reverse: bool = False
    quantized_results: bool = False
    gate_bits: int = 0
    gate_codes: np.ndarray | None = None
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    real: Mapping[str, np.ndarray] = field(default_factory=dict)
    float_operator: Recurrence | None = None

    @property
    def result_format(self) -> Format | None:
        """The format of the blocks of results, or None for binary16."""
        return self.input_format if self.quantized_results else None

    def __post_init__(self):
        gates, hidden, inputs = checks.gates_shape(self, "input_mantissas")
        checks.exact(self)
        for name, columns in (("input", inputs), ("recurrent", hidden)):
            shape = (gates, hidden, checks.block_count(self, columns))
            mantissas = (gates, hidden, columns)
            checks.array(self, f"{name}_mantissas", self.weights_format.dtype, mantissas, mantissas=self.weights_format)
            checks.array(self, f"{name}_exponents", np.int8, shape, exponents=self.weights_format)
        checks.array(self, "bias", np.uint16, (gates, hidden))
        checks.vectors(self, "initial", self.cell.states, hidden)
        checks.vectors(self, "vectors", self.cell.vectors, hidden)
        checks.real(self)
        self._check_gates()

    @property
    def title(self) -> str:
        return f"{self.cell.title}, block floating point"

    @property
    def inputs(self) -> int:
        return self.input_mantissas.shape[2]

    def operations(self, x: np.ndarray, sums: Sums) -> BlockOperations:
        """What the cell's formula computes with in one time step."""
        return BlockOperations(self, x)

    @property
    def multiplications(self) -> int:
        return self.input_mantissas.size + self.recurrent_mantissas.size

    def products(self):
        raise no_integers(self)
