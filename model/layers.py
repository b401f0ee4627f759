"""The layers of a quantised model, as the machine computes them.

Every `uint16` array holds binary16 bit patterns. `model_file` writes and reads layers by their fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from concord.golden.mfu.activation import Activation
from concord.model import layer_checks
from concord.model.block_conv import BlockConv
from concord.model.cells import lstm as cells
from concord.model.cells.cell import Cell
from concord.model.image_layers import Add, Concat, Conv, Pool
from concord.spec.formats import Format

#: Order of the gates in every array of a recurrent layer: forget, input, output, cell input (tanh).
GATES = tuple(gate.name for gate in cells.LSTM.gates)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Dense:
    """Integer dense layer: y = activation(a * scale + offset), a = binary16((start + weights @ q) * 2**-p).

    q are the codes of x * quant_scale + quant_offset; where those two are None, x already arrives in steps of the code.

    Attributes:
        name:           Unique in its model.
        weights_format: The weights are mantissas of this format.
        input_format:   The codes q are mantissas of this format; unsigned ones travel lowered by `input_format.zero`.
        unsigned:       Codes are clipped to 0..levels, else to lowest..highest.
        weights:        int16[outputs, inputs].
        start:          int64[outputs], added to the product; `zero * sum(weights)` where codes are unsigned.
        p:              Binary places that the sum is moved right, -32..31 (OutScale).
        scale:          uint16[outputs], S.
        offset:         uint16[outputs], T.
        quant_scale:    uint16[inputs], R, or None.
        quant_offset:   uint16[inputs], O, or None; None as well where it would be zero.
        activation:     Applied to the result.
        ranges:         Smallest and largest value seen in calibration: "input", "output", in real units.
        real:           Real numbers for people and retraining, which the machine does not need: what the lowering
            started from ("gain", "constant", "input" and "output" as [step, offset]), and the FP32 network's
            "fp32_weights" and "fp32_bias".
    """

    name: str
    weights_format: Format
    input_format: Format
    unsigned: bool
    weights: np.ndarray
    start: np.ndarray
    p: int
    scale: np.ndarray
    offset: np.ndarray
    quant_scale: np.ndarray | None = None
    quant_offset: np.ndarray | None = None
    activation: Activation = Activation.NONE
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    real: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self):
        rows, columns = layer_checks.matrix_shape(self, "weights")
        layer_checks.array(self, "weights", np.int16, (rows, columns), mantissas=self.weights_format)
        layer_checks.array(self, "start", np.int64, (rows,))
        layer_checks.array(self, "scale", np.uint16, (rows,))
        layer_checks.array(self, "offset", np.uint16, (rows,))
        layer_checks.array(self, "quant_scale", np.uint16, (columns,), optional=True)
        layer_checks.array(self, "quant_offset", np.uint16, (columns,), optional=True)
        layer_checks.places(self, "p")
        layer_checks.real(self)
        if self.quant_scale is None and self.quant_offset is not None:
            raise ValueError(f"layer {self.name!r}, quant_offset: needs a quant_scale beside it; give both or neither")

    @property
    def inputs(self) -> int:
        return self.weights.shape[1]

    @property
    def outputs(self) -> int:
        return self.weights.shape[0]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockDense:
    """Block floating point dense layer: y = activation(binary16(weights @ x) + bias).

    Attributes:
        name:           Unique in its model.
        weights_format: One block is `block` neighbouring weights of a row (the last one of a row may be shorter).
        input_format:   One block is `block` neighbouring inputs.
        block:          The native dimension that the weights were quantised for.
        mantissas:      int16[outputs, inputs].
        exponents:      int8[outputs, ceil(inputs / block)], E.
        bias:           uint16[outputs].
        activation:     Applied to the result.
        ranges:         As in `Dense`.
        real:           As in `Dense`, of the FP32 network only.
    """

    name: str
    weights_format: Format
    input_format: Format
    block: int
    mantissas: np.ndarray
    exponents: np.ndarray
    bias: np.ndarray
    activation: Activation = Activation.NONE
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    real: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self):
        rows, columns = layer_checks.matrix_shape(self, "mantissas")
        layer_checks.array(self, "mantissas", np.int16, (rows, columns), mantissas=self.weights_format)
        blocks = layer_checks.block_count(self, columns)
        layer_checks.array(self, "exponents", np.int8, (rows, blocks), exponents=self.weights_format)
        layer_checks.array(self, "bias", np.uint16, (rows,))
        layer_checks.real(self)

    @property
    def inputs(self) -> int:
        return self.mantissas.shape[1]

    @property
    def outputs(self) -> int:
        return self.mantissas.shape[0]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LSTM:
    """Integer LSTM, one pair of scales for each gate; gates in the order of `GATES`.

    a_W = binary16((input_weights @ q) * 2**-input_p) and a_R likewise, from the codes q of x and of h;
    u = a_W * input_scale + bias, g = a_R * recurrent_scale + u; f, i, o = sigmoid(g), j = tanh(g);
    c = f * c + i * j; h = o * tanh(c). Each operation rounds to binary16. Codes are signed, those of
    x * input_quant_scale and of h * hidden_quant_scale. Where the gates' outputs are quantised as well, each y of
    f, i, o and j becomes (y + centre) - centre.

    Attributes:
        name:               Unique in its model.
        weights_format:     Of both weight matrices; one bit wider than they were quantised to if asymmetric.
        input_format:       Of the codes of x and h.
        input_weights:      int16[4, outputs, inputs], W.
        recurrent_weights:  int16[4, outputs, outputs], R.
        input_p:            Binary places that the product with W is moved right, -32..31: all gates are one product.
        recurrent_p:        The same for R.
        input_scale:        uint16[4, outputs].
        recurrent_scale:    uint16[4, outputs].
        bias:               uint16[4, outputs].
        input_quant_scale:  uint16[inputs], or None where x already arrives in steps of the code.
        hidden_quant_scale: uint16[outputs], 2**(bits - 1).
        initial_hidden:     uint16[outputs], h before the first step.
        initial_cell:       uint16[outputs], c before the first step.
        gate_bits:          Width of the gates' outputs, 2 to 9, in steps of 2**-gate_bits, and 2**(1 - gate_bits) for
            j, which has a sign; 0 leaves them as they are.
        ranges:             For each gate "f.input" (of W x), "f.recurrent" (of R h), "f.output", and "input", "cell".
        real:               What the lowering started from ("input_steps", "recurrent_steps", "bias", "input"), the
            FP32 network's "fp32_input_weights", "fp32_recurrent_weights" and "fp32_bias", and from training, for each
            gate, zero points that the weights contain ("input_zeros", "recurrent_zeros": weights = q + z) and biases
            for targets without floating point ("bias_integers", of 32 bits, times "bias_steps").
    """

    name: str
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
    initial_hidden: np.ndarray
    initial_cell: np.ndarray
    gate_bits: int = 0
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    real: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self):
        gates, hidden, inputs = layer_checks.gates_shape(self, "input_weights")
        layer_checks.array(self, "input_weights", np.int16, (gates, hidden, inputs), mantissas=self.weights_format)
        layer_checks.array(self, "recurrent_weights", np.int16, (gates, hidden, hidden), mantissas=self.weights_format)
        for name in "input_scale", "recurrent_scale", "bias":
            layer_checks.array(self, name, np.uint16, (gates, hidden))
        layer_checks.array(self, "input_quant_scale", np.uint16, (inputs,), optional=True)
        for name in "hidden_quant_scale", "initial_hidden", "initial_cell":
            layer_checks.array(self, name, np.uint16, (hidden,))
        layer_checks.places(self, "input_p")
        layer_checks.places(self, "recurrent_p")
        layer_checks.real(self)
        if self.gate_bits and not 2 <= self.gate_bits <= 9:
            raise ValueError(f"layer {self.name!r}, gate_bits: 2 to 9, or 0 for none, not {self.gate_bits}")

    @property
    def centres(self) -> dict[str, float]:
        """For each gate the number beside which binary16 has the steps of its quantised output."""
        return {gate.name: gate.centre(self.gate_bits) for gate in self.cell.gates}

    @property
    def cell(self) -> Cell:
        return cells.LSTM

    @property
    def vectors(self) -> Mapping[str, np.ndarray]:
        """The cell's own parameters."""
        return {}

    @property
    def initial(self) -> tuple[np.ndarray, ...]:
        """The states before the first step."""
        return self.initial_hidden, self.initial_cell

    @property
    def inputs(self) -> int:
        return self.input_weights.shape[2]

    @property
    def outputs(self) -> int:
        return self.input_weights.shape[1]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockLSTM:
    """Block floating point LSTM: g = binary16([W U] @ [x h]) + bias, the rest as `LSTM`.

    x and h begin a native vector each, so no block holds elements of both; the sum over both is exact and rounded once.

    Attributes:
        name:                 Unique in its model.
        weights_format:       Of both weight matrices.
        input_format:         Of x and h.
        block:                The native dimension that the weights were quantised for.
        input_mantissas:      int16[4, outputs, inputs].
        input_exponents:      int8[4, outputs, ceil(inputs / block)].
        recurrent_mantissas:  int16[4, outputs, outputs].
        recurrent_exponents:  int8[4, outputs, ceil(outputs / block)].
        bias:                 uint16[4, outputs].
        initial_hidden:       uint16[outputs], h before the first step.
        initial_cell:         uint16[outputs], c before the first step.
        ranges:               As in `LSTM`.
        real:                 As in `LSTM`, of the FP32 network only.
    """

    name: str
    weights_format: Format
    input_format: Format
    block: int
    input_mantissas: np.ndarray
    input_exponents: np.ndarray
    recurrent_mantissas: np.ndarray
    recurrent_exponents: np.ndarray
    bias: np.ndarray
    initial_hidden: np.ndarray
    initial_cell: np.ndarray
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    real: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self):
        gates, hidden, inputs = layer_checks.gates_shape(self, "input_mantissas")
        for name, columns in (("input", inputs), ("recurrent", hidden)):
            shape = (gates, hidden, layer_checks.block_count(self, columns))
            mantissas = (gates, hidden, columns)
            layer_checks.array(self, f"{name}_mantissas", np.int16, mantissas, mantissas=self.weights_format)
            layer_checks.array(self, f"{name}_exponents", np.int8, shape, exponents=self.weights_format)
        layer_checks.array(self, "bias", np.uint16, (gates, hidden))
        for name in "initial_hidden", "initial_cell":
            layer_checks.array(self, name, np.uint16, (hidden,))
        layer_checks.real(self)

    @property
    def gate_bits(self) -> int:
        return 0

    @property
    def cell(self) -> Cell:
        return cells.LSTM

    @property
    def vectors(self) -> Mapping[str, np.ndarray]:
        """The cell's own parameters."""
        return {}

    @property
    def initial(self) -> tuple[np.ndarray, ...]:
        """The states before the first step."""
        return self.initial_hidden, self.initial_cell

    @property
    def inputs(self) -> int:
        return self.input_mantissas.shape[2]

    @property
    def outputs(self) -> int:
        return self.input_mantissas.shape[1]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Unknown:
    """A layer of a kind that this version does not know, kept so that the compiler can name it.

    Attributes:
        name: Unique in its model.
        kind: What the file calls it.
    """

    name: str
    kind: str


Layer = Dense | BlockDense | LSTM | BlockLSTM | Conv | BlockConv | Pool | Add | Concat | Unknown
