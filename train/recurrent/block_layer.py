"""Recurrent layers in block floating point, in real numbers behind their quantisers or as the machine computes.

Source: numerics.md of the specification, block floating point and LSTM.
"""

import torch
from concord.net.ops.recurrent import Direction, Recurrence
from concord.spec.numbers.formats import Format
from concord.train.lib.straight_through import binary16
from concord.train.qat.block_quantizer import Blocks
from concord.train.recurrent.operations import BlockOperations, direction_of, first_of, unroll, vectors_of
from torch import nn

#: Integers below this are exact in float64.
FLOAT64_EXACT = 1 << 53


class BlockQuantizedRecurrent(nn.Module):
    """One direction of a recurrent layer in block floating point; each pass brings its real weights to blocks.

    Args:
        op:             The recurrent operator.
        one:            The direction.
        weights_format: Format of the weights.
        input_format:   Format of x and h.
        block:          Elements that share an exponent: a native vector.
    """

    #: Weights are in real units.
    in_steps = False

    def __init__(self, op: Recurrence, one: Direction, weights_format: Format, input_format: Format, block: int):
        super().__init__()
        self.cell, self.block = op.cell, block
        self.weights_format, self.input_format = weights_format, input_format
        self.input_weights, self.recurrent_weights, self.bias = (
            nn.Parameter(torch.from_numpy(value.copy()))
            for value in (one.input_weights, one.recurrent_weights, one.bias))
        self.vectors = vectors_of(one.vectors)
        self.register_buffer("first", first_of(op))

    def forward(self, x, lengths, *, lowered: bool):
        """float[samples, time, inputs] to the hidden vectors of all time steps."""
        matrices = [Blocks.apply(binary16(weights), self.weights_format, self.block, 2)
                    for weights in (self.input_weights, self.recurrent_weights)]
        if lowered:
            self._check(matrices)
            matrices = [matrix.double() for matrix in matrices]
        w, r = (matrix.flatten(0, 1).T for matrix in matrices)

        def product(values, matrix, axis):
            return Blocks.apply(values, self.input_format, self.block, axis).to(matrix.dtype) @ matrix + 0.0

        ops = BlockOperations(
            self.cell, lambda operand: product(operand, r, 1), self.vectors, self.bias, lowered=lowered)
        return unroll(ops, self.cell, product(x, w, 2).unflatten(2, self.bias.shape), lengths, self.first)

    def _check(self, matrices):
        """Refuse sums that float64 may not hold: of the largest inputs, in the smallest units."""
        unit = sum(fmt.e_min - (fmt.bits - 1) for fmt in (self.weights_format, self.input_format))
        with torch.no_grad():
            rows = sum(matrix.double().abs().sum(2) for matrix in matrices)
        largest = rows.max().item() * 2.0**self.input_format.e_max
        if largest * 2.0**-unit >= FLOAT64_EXACT:
            raise ValueError(f"{self.cell.title}: sums up to {largest:.3g} in units of 2**{unit} are not exact in "
                             "float64; use fewer bits or a smaller range of exponents")

    def direction(self) -> Direction:
        """The direction with the numbers that training has found."""
        return direction_of(self)
