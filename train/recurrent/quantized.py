"""Recurrent layers after quantisers, in integers and in blocks: in real numbers, or in the machine's arithmetic.

Source: S1; numerics.md of the specification, LSTM and block floating point.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from concord.net.cells.golden import operands
from concord.net.cells.output_codes import NO_CODES, OutputCodes, output_codes
from concord.net.ops.recurrent import Direction, Recurrence
from concord.net.quantize.gated import Gated
from concord.net.quantize.gates import IntegerScale
from concord.net.quantize.recipe import Gates
from concord.spec.numbers.formats import Format
from concord.train.lib.straight_through import LoweredProduct, Round, binary16, plain
from concord.train.qat.block_quantizer import BlocksFunction, check_sums
from concord.train.recurrent.operations import (
    TorchBlockOperations,
    TorchOperations,
    arrays,
    direction_of,
    first_of,
    unroll,
    vectors_of,
)
from torch import nn


class QuantizedRecurrent(nn.Module):
    """One direction of a recurrent layer in integers.

    Args:
        op:        The recurrent operator.
        one:       The direction.
        found:     Its integers, from which training starts.
        choices:   Bits of the outputs and of the biases of gates.

    Attributes:
        steps:      float64[W or R, gate], the real value of one step of the weights.
        code_steps: float64[x or h], the real value of one step of the codes.
    """

    #: Weights are in steps of their gate's scale, so that one learning rate suits every gate.
    in_steps = True

    def __init__(self, op: Recurrence, one: Direction, found: Gated, choices: Gates):
        super().__init__()
        self.cell, self.found, self.bias_bits = op.cell, found, choices.biases
        self.gate_output = RoundedOutputs(output_codes(op.cell, choices.outputs, found.outputs))
        self.register_buffer("steps", torch.from_numpy(found.each("step")))
        self.register_buffer("code_steps", torch.tensor([found.inputs.step, found.hidden.step], dtype=torch.float64))
        matrices = [matrix.astype(np.float64) for matrix in (one.input_weights, one.recurrent_weights)]
        self.input_weights, self.recurrent_weights = (
            nn.Parameter(in_steps(*given)) for given in zip(matrices, found.weights, found.affines, strict=True))
        self.bias = nn.Parameter(torch.from_numpy(one.bias.copy()))
        self.vectors = vectors_of(one.vectors)
        self.register_buffer("first", first_of(op))

    @property
    def matrices(self) -> tuple[nn.Parameter, nn.Parameter]:
        """W and R in steps."""
        return self.input_weights, self.recurrent_weights

    @property
    def products(self) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """The products of the machine as (matrix, gates): W for all gates, and R for each vector that it multiplies."""
        every = tuple(gate.name for gate in self.cell.gates)
        return (0, every), *((1, gates) for gates in operands(self.cell))

    def integers(self) -> tuple[torch.Tensor, torch.Tensor]:
        """q + z of W[gates, hidden, inputs] and R[gates, hidden, hidden]."""
        pairs = zip(self.matrices, self.found.affines, strict=True)
        return tuple(
            torch.stack([Round.apply(weights[gate], *affine.ends) for gate, affine in enumerate(affines)])
            for weights, affines in pairs
        )

    def forward(self, x, lengths, *, lowered: bool, seen: list | None = None):
        """float[samples, time, inputs] to the hidden vectors of all time steps.

        Args:
            seen: List to which the codes of every vector that R multiplies are appended, or None.
        """
        rounded, hidden, fmt = binary16 if lowered else plain, self.bias.shape[1], self.found.inputs.format

        def product(weights, gate_steps, constant, s_in, least, biases=None):
            gain = gate_steps.repeat_interleave(hidden)
            units = {"s_in": s_in, "m_in": 0.0, "s_out": 1.0, "m_out": 0.0}
            result = self.found.result_format and (self.found.result_format, least)
            return LoweredProduct(weights.flatten(0, 1), fmt, False, gain, constant, units, rounded, biases, result)

        def of_hidden(operand):
            found = self.codes(operand, 1, rounded)
            if seen is not None:
                seen.append(found)
            return of_h.scaled(found)

        w, r = self.integers()
        (s_in, s_hidden), (least, of_r) = self.code_steps.tolist(), self.found.result_shifts
        none = torch.zeros(self.bias.numel(), dtype=torch.float64)
        of_h = product(r, self.steps[1], none, s_hidden, of_r)
        if self.bias_bits:
            u = product(w, self.steps[0], none, s_in, least, self.biases().flatten()).scaled(self.codes(x, 0, rounded))
        else:
            of_x = product(w, self.steps[0], self.bias.double().flatten(), s_in, least)
            u = rounded(of_x.scaled(self.codes(x, 0, rounded)) + of_x.offset)
        u = u.unflatten(2, self.bias.shape)
        ops = TorchOperations(self.cell, of_hidden, self.vectors, lowered=lowered, outputs=self.gate_output)
        return unroll(ops, self.cell, u, lengths, self.first)

    def biases(self) -> torch.Tensor:
        """float64[gates, hidden], integer biases in steps of the product with W, which starts from them."""
        return Round.apply(self.bias.double() / (self.steps[0] * self.code_steps[0])[:, None], -2.0**31, 2.0**31)

    def codes(self, value, matrix: int, rounded=binary16):
        """The codes of x, which W multiplies (`matrix` is 0), or of what R multiplies (1)."""
        fmt = self.found.inputs.format
        return Round.apply(rounded(value * rounded(1 / self.code_steps[matrix])), fmt.lowest, fmt.highest)

    @torch.no_grad()
    def multiplied(self, x, lengths) -> dict[tuple[int, tuple[str, ...]], torch.Tensor]:
        """The codes that each product of the machine multiplies, int16[samples * time, columns].

        Time steps behind the end of a sequence are left out.
        """
        seen, on = [], torch.arange(x.shape[1]) < lengths[:, None]
        self(x, lengths, lowered=True, seen=seen)
        first, *others = self.products
        found = {first: self.codes(x, 0)[on]}
        for index, key in enumerate(others):
            found[key] = torch.stack(seen[index::len(others)], 1)[on]
        return {key: codes.to(torch.int16) for key, codes in found.items()}

    def gated(self) -> Gated:
        """The integers that training has found."""
        weights = tuple(codes.detach().numpy().astype(np.int64) for codes in self.integers())
        affines = tuple(tuple(replace(affine, step=step) for affine, step in zip(*pair, strict=True))
                        for pair in zip(self.found.affines, self.steps.tolist(), strict=True))
        inputs, hidden = (replace(codes, step=step) for codes, step in zip(
            (self.found.inputs, self.found.hidden), self.code_steps.tolist(), strict=True))
        return replace(self.found, weights=weights, affines=affines, inputs=inputs, hidden=hidden,
                       vectors=arrays(self.vectors), **arrays({"bias": self.bias}))


def in_steps(weights: np.ndarray, integers: np.ndarray, affines: Sequence[IntegerScale]) -> torch.Tensor:
    """Weights in steps of their gate's scale, float32, that round to the integers q + z of quantisation.

    In steps, rounding is all that quantisation does. Fractions stay, so that small gradients can move an integer; the
    few that float32 would round across a tie begin at their integer.
    """
    starts = []
    for matrix, codes, affine in zip(weights, integers, affines, strict=True):
        wanted = torch.from_numpy(codes).float()
        start = torch.from_numpy(matrix / affine.step).float().clamp(*affine.ends)
        starts.append(torch.where(start.round() == wanted, start, wanted))
    return torch.stack(starts)


class RoundedOutputs:
    """The quantiser of the outputs of gates: to the nearest step, ties to even, as the machine's additions round.

    Args:
        codes: The codes of the outputs by the gates' names; a gate without keeps its output.
    """

    def __init__(self, codes: Mapping[str, OutputCodes]):
        self._codes = codes

    def __call__(self, y: torch.Tensor, gate: str) -> torch.Tensor:
        if gate not in self._codes:
            return y
        one = self._codes[gate]
        return Round.apply(y / one.step, one.lowest, one.highest) * one.step + 0.0


class BlockQuantizedRecurrent(nn.Module):
    """One direction of a recurrent layer in block floating point; each pass brings its real weights to blocks.

    Args:
        op:             The recurrent operator.
        one:            The direction.
        weights_format: Format of the weights.
        input_format:   Format of x and h.
        block:          Elements that share an exponent: a native vector.
        quantized_results: Whether results of products become blocks of `input_format`.
        codes:          Codes of the outputs of gates by the gates' names.
    """

    #: Weights are in real units.
    in_steps = False

    def __init__(self, op: Recurrence, one: Direction, weights_format: Format, input_format: Format, block: int,
                 quantized_results: bool = False, codes: Mapping[str, OutputCodes] = NO_CODES):
        super().__init__()
        self.cell, self.block, self.quantized_results = op.cell, block, quantized_results
        self.weights_format, self.input_format = weights_format, input_format
        self.gate_output = RoundedOutputs(codes)
        self.input_weights, self.recurrent_weights, self.bias = (
            nn.Parameter(torch.from_numpy(value.copy()))
            for value in (one.input_weights, one.recurrent_weights, one.bias))
        self.vectors = vectors_of(one.vectors)
        self.register_buffer("first", first_of(op))

    def forward(self, x, lengths, *, lowered: bool):
        """float[samples, time, inputs] to the hidden vectors of all time steps."""
        matrices = [BlocksFunction.apply(binary16(weights), self.weights_format, self.block, 2)
                    for weights in (self.input_weights, self.recurrent_weights)]
        if lowered:
            formats = self.weights_format, self.input_format
            check_sums(self.cell.title, matrices, 2.0**self.input_format.e_max, formats)
            matrices = [matrix.double() for matrix in matrices]
        w, r = (matrix.flatten(0, 1).T for matrix in matrices)

        def product(values, matrix, axis):
            return BlocksFunction.apply(values, self.input_format, self.block, axis).to(matrix.dtype) @ matrix + 0.0

        def results(values):
            return BlocksFunction.apply(values, self.input_format, self.block, 2)

        ops = TorchBlockOperations(
            self.cell, lambda operand: product(operand, r, 1), self.vectors, self.bias, lowered=lowered,
            results=results if self.quantized_results else plain, outputs=self.gate_output)
        return unroll(ops, self.cell, product(x, w, 2).unflatten(2, self.bias.shape), lengths, self.first)

    def direction(self) -> Direction:
        """The direction with the numbers that training has found."""
        return direction_of(self)
