"""Arithmetic of layers whose rows of weights are multiplied by the input at one position or at many.

A geometry (one position for a dense layer, windows for a convolution) is a second base class, which has

- `groups`, the number of groups of neighbouring channels, each with its own outputs,
- `bordered(x, value)`, the input with its padding, and `unbordered(x)`, which takes it away,
- `per_channel(v)`, a vector of parameters in the shape of the bordered input,
- `at_positions(x)`, the bordered input as [groups, samples * positions, columns],
- `flattened(y)`, results [samples * positions, rows] as [samples, outputs],
- `weights_shape(name)`, `exponents_shape(weights)` and `channels_in`, the shapes of the arrays of parameters,
- `border`, the binary16 pattern of the padding in integer mode.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from concord.golden.lib import float16
from concord.golden.mfu.multifunction import activate
from concord.net.arithmetic import integer, native_vectors
from concord.net.arithmetic.integer import IntegerProduct
from concord.net.arithmetic.line import Line
from concord.net.arithmetic.native_vectors import spread
from concord.net.layers import checks
from concord.net.layers.layer import Layer, Trace, no_integers
from concord.net.ops.operator import Operator
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format


class Rows(Layer):
    """Members that both arithmetics share."""

    __slots__ = ()




@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class IntegerRows(Rows):
    """Integer mode: y = activation(a * scale + offset), a = binary16((start + weights @ q) * 2**-p).

    q are the codes of x * quant_scale + quant_offset. If both are None, x is already in steps of the code.

    Attributes:
        name:           Name of the layer, unique in its model.
        weights_format: Format of the weights, which are mantissas.
        input_format:   Format of the codes q, which are mantissas; unsigned codes are lowered by `input_format.zero`.
        unsigned:       Whether codes are clipped to 0..levels instead of lowest..highest.
        weights:        int16[rows, ...], in the shape of the geometry.
        start:          int64[rows], added to the product; it includes `zero * sum(weights)` for unsigned codes.
        p:              Number of bits by which the sum is shifted right, -32..31 (OutScale).
        scale:          uint16[rows], S.
        offset:         uint16[rows], T.
        quant_scale:    uint16[channels], R, or None.
        quant_offset:   uint16[channels], O, or None; None as well where it would be zero.
        activation:     Activation function of the result.
        ranges:         Smallest and largest values of "input" and "output" in real units, see `net.ranges`.
        real:           Real numbers for people and retraining, which the machine does not need: the arguments of the
            lowering ("gain", "constant", "input" and "output" as [step, offset]), "line" where the network scales its
            input channel by channel ahead of the quantiser, [scales, offsets], after which "input" counts, and
            "ceiling", [6], where a relu6 is read.
        float_operator: See `Layer`.
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
    float_operator: Operator | None = None

    def __post_init__(self):
        shape = self.weights_shape("weights")
        checks.array(self, "weights", self.weights_format.dtype, shape, mantissas=self.weights_format)
        checks.array(self, "start", np.int64, shape[:1])
        checks.array(self, "scale", np.uint16, shape[:1])
        checks.array(self, "offset", np.uint16, shape[:1])
        checks.array(self, "quant_scale", np.uint16, (self.channels_in,), optional=True)
        checks.array(self, "quant_offset", np.uint16, (self.channels_in,), optional=True)
        checks.right_shift(self, "p")
        checks.real(self)
        checks.line(self)
        if self.quant_scale is None and self.quant_offset is not None:
            raise ValueError(f"layer {self.name!r}, quant_offset: needs a quant_scale beside it; give both or neither")

    @property
    def multiplications(self) -> int:
        return self.weights.size * self.outputs // len(self.weights)

    @property
    def clips(self) -> bool:
        # Below an offset of 0 the quantiser passes negative numbers; with a line, each channel has an offset.
        return self.unsigned and self.real.get("input", (1.0, 0.0))[1] >= 0 and "line" not in self.real

    def real_input(self, trace):
        if "input" not in self.real:
            return None
        step, offset = self.real["input"]
        scaled = (trace.codes + (self.input_format.zero if self.unsigned else 0)) * step + offset
        return self.line.repeated(scaled.shape[1]).inverse.applied(scaled) if "line" in self.real else scaled

    def real_outputs(self, trace):
        step, offset = self.real.get("output", (1.0, 0.0))
        return Rows.real_outputs(self, trace) * step + offset

    @property
    def line(self) -> Line:
        """What the network makes of its input ahead of the layer, which R and O do in the machine."""
        found = self.real.get("line")
        return Line.neutral(self.channels_in) if found is None else Line(scale=found[0], offset=found[1])

    @property
    def product(self) -> IntegerProduct:
        """The only product of the layer."""
        rows = len(self.weights) // self.groups
        return IntegerProduct(
            name=self.name,
            weights=self.weights.reshape(self.groups, rows, -1),
            start=self.start.reshape(self.groups, rows),
            p=self.p,
            input_format=self.input_format,
        )

    def products(self):
        return (self.product,)

    def run(self, x, lengths, sums=IntegerProduct.totals):
        product, codes = self.product, self.codes(x[0])
        a = product.rounded(sums(product, self.at_positions(codes.astype(np.int16))))
        y = float16.add(float16.mul(a, self.scale), self.offset)
        return Trace(outputs=self.flattened(activate(self.activation, y)), codes=self.unbordered(codes))

    def codes(self, x: np.ndarray) -> np.ndarray:
        """The integer codes of uint16[samples, inputs] that enter the product, including the padding."""
        scale, offset = (None if v is None else self.per_channel(v) for v in (self.quant_scale, self.quant_offset))
        bordered = self.bordered(x, np.uint16(self.border))
        return integer.codes(bordered, self.input_format, unsigned=self.unsigned, scale=scale, offset=offset)

    @property
    def border_codes(self) -> np.ndarray:
        """int64[channels], the codes of the padding."""
        border = np.full(self.channels_in, self.border, np.uint16)
        return integer.codes(
            border, self.input_format, unsigned=self.unsigned, scale=self.quant_scale, offset=self.quant_offset)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockRows(Rows):
    """Block floating point: y = activation(binary16(weights @ x) + bias).

    A block is `block` neighbouring elements of a native vector. By default, the columns of a row (or the channels of a
    pixel) follow each other there. Where they are a concatenation, of which each part begins a native vector, or a
    flattened image, of which each pixel does, `places` tells where each of them lies.

    Attributes:
        name:           Name of the layer, unique in its model.
        weights_format: Format of the weights; the geometry divides them into blocks.
        input_format:   Format that the input is quantised to, in the same blocks.
        block:          Number of elements of a block, the native dimension that the weights were quantised for.
        places:         int32[columns], the place of each column in native vectors, see `native_vectors`; of a
            convolution int32[channels], that of each channel of a pixel. None for columns that follow each other.
        mantissas:      int16[rows, ...], in the shape of the geometry.
        exponents:      int8[rows, ..., blocks], E.
        bias:           uint16[rows].
        activation:     Activation function of the result.
        ranges:         Smallest and largest values of "input" and "output" in real units, see `net.ranges`.
        real:           Real numbers of training, see `IntegerRows`; there are none now.
        float_operator: See `Layer`.
    """

    name: str
    weights_format: Format
    input_format: Format
    block: int
    mantissas: np.ndarray
    exponents: np.ndarray
    bias: np.ndarray
    places: np.ndarray | None = None
    activation: Activation = Activation.NONE
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    real: Mapping[str, np.ndarray] = field(default_factory=dict)
    float_operator: Operator | None = None

    def __post_init__(self):
        shape = self.weights_shape("mantissas")
        checks.exact(self)
        checks.array(self, "mantissas", self.weights_format.dtype, shape, mantissas=self.weights_format)
        checks.array(self, "exponents", np.int8, self.exponents_shape(shape), exponents=self.weights_format)
        self.check_finish(shape[0])
        checks.real(self)

    def check_finish(self, rows: int):
        """Refuse wrong parameters of what follows the product of `rows` rows."""
        checks.array(self, "bias", np.uint16, (rows,))

    @property
    def multiplications(self) -> int:
        return self.mantissas.size * self.outputs // len(self.mantissas)

    def products(self):
        raise no_integers(self)

    def run(self, x, lengths, sums=IntegerProduct.totals):
        y = self.finished(self.multiplied(self.bordered(x[0], np.uint16(0))))
        return Trace(outputs=self.flattened(activate(self.activation, y)))

    def finished(self, y: np.ndarray) -> np.ndarray:
        """What becomes of products uint16[..., rows] before the activation function."""
        return float16.add(y, self.bias)

    def multiplied(self, x: np.ndarray) -> np.ndarray:
        """The exact products of the bordered input, each rounded once: uint16[samples * positions, rows]."""
        return self.row_product(self.at_positions(x)[0], self.mantissas, self.exponents)

    def row_product(self, columns: np.ndarray, mantissas: np.ndarray, exponents: np.ndarray) -> np.ndarray:
        """Rows [rows, columns] of weights times uint16[samples, columns]."""
        mantissas, columns = (spread(values, self.places) for values in (mantissas, columns))
        parts = [(mantissas, exponents, columns)]
        return native_vectors.product(parts, self.weights_format, self.input_format, self.block)
