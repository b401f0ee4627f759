"""Recurrent layers in block floating point, in real numbers behind their quantisers or as the machine computes.

Source: numerics.md of the specification, block floating point and LSTM.
"""

from dataclasses import replace

import torch
from concord.net.layers.recurrent import BlockRecurrent
from concord.net.lowering import block_lowering
from concord.net.lowering.lowering import recorded
from concord.net.quantize import tensors as ptq
from concord.spec.numbers.formats import Format
from concord.train.lib.straight_through import binary16
from concord.train.qat.block_quantizer import Blocks
from concord.train.recurrent.bidirectional import Lowered
from concord.train.recurrent.float_layer import FloatRecurrent, states_by_name
from concord.train.recurrent.operations import BlockOperations, unroll
from torch import nn

#: Integers below this are exact in float64.
FLOAT64_EXACT = 1 << 53


class BlockQuantizedRecurrent(nn.Module):
    """One recurrent layer in block floating point. The real weights are trained; each pass brings them to blocks.

    Args:
        layer:          The FP32 layer.
        weights_format: Format of the weights.
        input_format:   Format of x and h.
        block:          Elements that share an exponent: a native vector.
    """

    def __init__(self, layer: FloatRecurrent, weights_format: Format, input_format: Format, block: int):
        super().__init__()
        self.cell, self.block = layer.cell, block
        self.weights_format, self.input_format = weights_format, input_format
        self.fp32 = layer.parameters_by_name()
        self.input_weights, self.recurrent_weights, self.bias = (
            nn.Parameter(value.detach().clone()) for value in (layer.input_weights, layer.recurrent_weights, layer.bias)
        )
        self.vectors = nn.ParameterDict({key: value.detach().clone() for key, value in layer.vectors.items()})
        self.register_buffer("first", layer.first.clone())

    @torch.no_grad()
    def decibels(self) -> float:
        """Signal to quantisation noise of the weights of both matrices."""
        real = self.input_weights, self.recurrent_weights
        made = [Blocks.apply(binary16(weights), self.weights_format, self.block, 2) for weights in real]
        return ptq.decibels(*(torch.cat([part.flatten() for part in parts]).numpy() for parts in (real, made)))

    def forward(self, x, lengths, lowered: bool):
        """As `FloatRecurrent`."""
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

    def lowered(self, name: str, source: str, x: torch.Tensor, lengths: torch.Tensor, final: bool) -> Lowered:
        """The layer of the quantised model. Arguments as in `Bidirectional.lowered`."""
        with torch.no_grad():
            hidden, last = self(x, lengths, True)
        return Lowered(layers=(self.lower(name),), hidden=hidden, last=last)

    def lower(self, name: str) -> BlockRecurrent:
        """The layer of the quantised model."""
        with torch.no_grad():
            made = block_lowering.block_recurrent(
                name=name,
                cell=self.cell,
                input_weights=self.input_weights.numpy(),
                recurrent_weights=self.recurrent_weights.numpy(),
                bias=self.bias.numpy(),
                weights_format=self.weights_format,
                input_format=self.input_format,
                block=self.block,
                initial=states_by_name(self.cell, self.first),
                vectors={key: value.numpy() for key, value in self.vectors.items()},
            )
        return replace(made, real=recorded(self.fp32))
