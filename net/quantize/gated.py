"""Integers of recurrent layers: a scale for each matrix of each gate.

Source: S1; numerics.md of the specification, LSTM.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from concord.net.layers.recurrent import IntegerRecurrent
from concord.net.lowering import lowering
from concord.net.ops.recurrent import Direction, Recurrence
from concord.net.quantize import gates, tensors
from concord.net.quantize.codes import InputCodes
from concord.net.quantize.recipe import Gates
from concord.spec.numbers.formats import Format

#: Most vectors of a calibration set from which steps of results are found.
_CALIBRATED = 2048
#: Number of halvings of the coarsest step that are tried for the codes of results.
_FINER = 6


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Gated:
    """Integers of one direction of a recurrent layer.

    Attributes:
        weights: int64[gates, hidden, columns], W and R: q + z of each gate.
        affines: Scale and zero point of W and of R, for each gate.
        bias:    float32[gates, hidden].
        vectors: float32[hidden], the cell's own vectors by name.
        inputs:  Codes of x.
        hidden:  Codes of h.
        result_format: Format of the codes of the results of both products; None for binary16.
        outputs: int64[gates, 3], codes of the outputs of gates by measured ranges; None for those of their curves.
        result_shifts: Right shifts of the products with W and with R, which decide the steps of these codes.
    """

    weights: tuple[np.ndarray, np.ndarray]
    affines: tuple[tuple[gates.IntegerScale, ...], tuple[gates.IntegerScale, ...]]
    bias: np.ndarray
    vectors: Mapping[str, np.ndarray]
    inputs: InputCodes
    hidden: InputCodes
    result_format: Format | None = None
    outputs: np.ndarray | None = None
    result_shifts: tuple[int, int] = (-32, -32)

    @classmethod
    def of(cls, one: Direction, bits: int, choices: Gates, inputs: InputCodes, hidden: InputCodes) -> "Gated":
        """The integers of `bits` bits of a direction."""
        matrices = [matrix.astype(np.float64) for matrix in (one.input_weights, one.recurrent_weights)]
        affines = tuple(zip(*(gates.of_gate(pair, bits, choices) for pair in zip(*matrices, strict=True)), strict=True))
        weights = tuple(np.stack([gates.quantize(gate, affine) + affine.zero
                                  for gate, affine in zip(matrix, scales, strict=True)])
                        for matrix, scales in zip(matrices, affines, strict=True))
        return cls(weights=weights, affines=affines, bias=one.bias, vectors=one.vectors, inputs=inputs, hidden=hidden)

    def with_results(self, fmt: Format, x: np.ndarray, h: np.ndarray, biased: bool) -> "Gated":
        """The same integers, with codes for the results of the products of a calibration set.

        Args:
            fmt:    Format of these codes.
            x, h:   Real[samples, columns], what W and R multiply.
            biased: Whether biases are integers, which the product with W contains.
        """
        found, steps = [], self.each("step")
        for matrix, (values, codes) in enumerate(((x, self.inputs), (h, self.hidden))):
            weights, start = self.weights[matrix], np.zeros(self.bias.shape, np.int64)
            if biased and not matrix:
                start = np.rint(self.bias / (steps[0] * codes.step)[:, None]).astype(np.int64)
            some = codes.quantized(values[::-(-len(values) // _CALIBRATED)]) / codes.step
            sums = some @ np.moveaxis(weights, -1, -2).astype(np.float64) + start[:, None]
            least = lowering.right_shift(weights, start, codes.format, False)
            found.append(result_shift(sums, steps[matrix], fmt, least))
        return replace(self, result_format=fmt, result_shifts=tuple(found))

    @property
    def result_steps(self) -> np.ndarray:
        """float32[W or R, gate], the real value of one step of the codes of results."""
        shifts, steps = np.array(self.result_shifts)[:, None], np.array([[self.inputs.step], [self.hidden.step]])
        return (self.each("step") * steps * 2.0**shifts).astype(np.float32)

    def each(self, name: str) -> np.ndarray:
        """float64[W or R, gate], an attribute of each scale."""
        return np.array([[getattr(affine, name) for affine in affines] for affines in self.affines], np.float64)

    @property
    def real(self) -> list[np.ndarray]:
        """The real numbers that the integers stand for."""
        return [matrix * step[:, None, None] for matrix, step in zip(self.weights, self.each("step"), strict=True)]

    def layer(self, name: str, op: Recurrence, fmt: Format, choices: Gates) -> IntegerRecurrent:
        """The layer of the quantised model, which reads a sequence from its beginning.

        Args:
            name:    Name of the layer.
            op:      The operator of this direction alone.
            fmt:     Format of the weights, q + z.
            choices: Bits of the outputs and of the biases of gates.
        """
        steps, zeros, bias = self.each("step"), self.each("zero"), self.bias.astype(np.float64)
        layer = lowering.recurrent(
            name=name, cell=op.cell, input_codes=self.weights[0], recurrent_codes=self.weights[1], input_steps=steps[0],
            recurrent_steps=steps[1], bias=bias, weights_format=fmt, input_format=self.inputs.format,
            s_in=self.inputs.step, s_hidden=self.hidden.step, vectors=self.vectors, initial=op.first,
            gate_bits=choices.outputs, gate_codes=self.outputs, bias_bits=choices.biases,
            result_format=self.result_format, result_shifts=self.result_shifts, float_operator=op)
        more = {"input_zeros": zeros[0], "recurrent_zeros": zeros[1]}
        return replace(layer, real=dict(layer.real) | {key: np.float64(value) for key, value in more.items()})


def result_shift(sums: np.ndarray, steps: np.ndarray, fmt: Format, least: int) -> int:
    """The right shift for which codes of sums lose least: the smallest sum of squared errors in real units.

    Args:
        sums:  Float64[gates, samples, rows], whole numbers.
        steps: Float64[gates], the real value of 1 of each gate.
        fmt:   Format of the codes.
        least: Least right shift, with which no sum overflows.
    """
    def lost(p: int) -> float:
        codes = np.clip(np.rint(sums * 2.0**-p), fmt.lowest, fmt.highest)
        return float(np.square((codes * 2.0**p - sums) * steps[:, None, None]).sum())

    largest = float(np.abs(sums).max(initial=1.0))
    whole = int(np.ceil(np.log2(largest / fmt.highest)))  # nothing clips
    return min(range(max(whole - _FINER, least), max(whole, least) + 1), key=lost)


def lost_weights(directions: Sequence[Direction], quantized: Sequence[Sequence[np.ndarray]]) -> str:
    """Loss of both matrices of each direction by quantisation, in words.

    Args:
        directions: Directions in FP32.
        quantized:  For each of them, the real numbers that W and R became.
    """
    ratios = (tensors.decibels(*(np.concatenate([np.ravel(matrix) for matrix in matrices]) for matrices in (
        (one.input_weights, one.recurrent_weights), made))) for one, made in zip(directions, quantized, strict=True))
    return f"weights {', '.join(f'{ratio:.1f}' for ratio in ratios)} dB"
