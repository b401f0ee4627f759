"""A convolution, dense layer or average in block floating point, in real numbers or in the machine's arithmetic.

Source: numerics.md of the specification, block floating point and matrix-vector product.
"""

from dataclasses import replace
from math import prod

import numpy as np
import torch
from concord.net.arithmetic.windows import reciprocal
from concord.net.layers.convolution import seen
from concord.net.layers.pooling import identity
from concord.net.quantize.blocks import Blocks as BlockArithmetic
from concord.net.quantize.choices import BlockRecipe
from concord.net.quantize.plan import Part
from concord.spec.numbers.formats import Format
from concord.train.lib.curves import curve
from concord.train.lib.straight_through import binary16
from concord.train.qat.block_quantizer import check_sums, placed_blocks
from concord.train.qat.geometry import Geometry
from concord.train.qat.weights import keep_structure
from torch import nn
from torch.nn import functional


class BlockLayer(nn.Module):
    """A convolution or dense layer, in real numbers after its quantisers or in the machine's arithmetic.

    The real weights are what is trained; each forward pass brings them to binary16 and to blocks.

    Args:
        part:   The layer in the plan of its network.
        recipe: How the layer is quantised.
        places: Places of its inputs or channels in native vectors, see `net.layers.rows.BlockRows`.
        patch:  Whether a block lies along a patch, rather than along channels.

    Attributes:
        activation: Activation function of the result.
    """

    #: No quantiser has parameters, since exponents follow the numbers.
    inputs = None

    def __init__(self, part: Part, recipe: BlockRecipe, places: np.ndarray | None = None, patch: bool = False):
        super().__init__()
        self.geometry, self.name, self.block = Geometry.of(part), part.name, recipe.block
        self.activation, self.op = part.activation, part.op
        self.places, self.patch = places, patch
        self.weights_format, self.input_format = recipe.formats(part.name)
        self._begin(part)

    def _begin(self, part: Part):
        """Take over the numbers that are trained."""
        self.weight, self.bias = (nn.Parameter(torch.from_numpy(one.copy())) for one in (part.op.weight, part.op.bias))
        keep_structure(part.op, self.weight, self.bias)
        if not self.geometry.dense:
            self.columns = torch.from_numpy(
                seen(len(self.weight), part.shapes[0][0], self.geometry.groups))[:, :, None, None]

    def bound(self):
        """There are no parameters of quantisers."""

    def rates(self) -> dict[float, list[nn.Parameter]]:
        """Parameters by their share of the learning rate."""
        return {1: list(self.parameters())}

    def write(self, arithmetic: BlockArithmetic, name: str):
        """Write the numbers of the layer into an arithmetic, as those of a part."""
        arithmetic.trained[name] = replace(
            self.op, weight=self.weight.detach().numpy().copy(), bias=self.bias.detach().numpy().copy())

    def forward(self, x: torch.Tensor, lengths: torch.Tensor | None = None, *, lowered: bool = False):
        """The result in real numbers, or in the machine's arithmetic if `lowered`."""
        x = self._blocks(self._vectors(x), self.input_format)
        if not lowered:
            y = self._real(x)
            return curve(self.activation, False)(y)
        weights = self._weights()
        check_sums(f"layer {self.name!r}", [weights.flatten(1)], 2.0**self.input_format.e_max,
                   (self.weights_format, self.input_format))
        y = self._finished(binary16(self._product(x.double(), weights.double(), None) + 0.0))
        return curve(self.activation, True)(y)

    def _real(self, x):
        """The result in real numbers for quantised inputs, before the relu."""
        return self._product(x, self._weights(), self.bias)

    def _finished(self, y):
        """What becomes of products in binary16 before the relu."""
        return binary16(y + binary16(self.bias).view(-1, *[1] * (y.dim() - 2)) + 0.0)  # -0 becomes +0

    def _blocks(self, x, fmt: Format, stops: bool = True):
        """The tensor, quantised in the native vectors of its places; see `placed_blocks`."""
        return placed_blocks(x, fmt, self.block, self.places, stops)

    def _vectors(self, x):
        """The input with the elements of a block along axis 1."""
        if self.geometry.dense:
            return x.flatten(1)
        return self._patches(x) if self.patch else x

    def _patches(self, x):
        """Patches of the input, [samples, rows of a window * columns of a window * channels, *positions]."""
        window = self.geometry.window
        positions, padded = window.counts(*x.shape[2:]), functional.pad(x, self.geometry.around)
        found = functional.unfold(padded, window.size, window.dilation, stride=window.stride)
        return found.unflatten(1, (x.shape[1], -1)).transpose(1, 2).flatten(1, 2).unflatten(2, positions)

    def _weights(self):
        """The quantised weights: float32 in their own shape, or [outputs, columns, 1, 1] for blocks along a patch."""
        weights = binary16(self.weight)
        if self.patch:
            weights = weights.permute(0, 2, 3, 1).flatten(1)[:, :, None, None]
        if self.geometry.dense or self.geometry.groups == 1:
            return self._blocks(weights, self.weights_format)
        columns = self.columns.expand_as(weights)
        whole = weights.new_zeros(len(weights), weights.shape[1] * self.geometry.groups, *weights.shape[2:])
        # A weight that is alone in its block is always the largest: if its gradient stopped there, it would stay there.
        whole = self._blocks(whole.scatter(1, columns, weights), self.weights_format, False)
        return whole.gather(1, columns)

    def _product(self, x, weights, constant):
        if self.patch:
            return functional.conv2d(x, weights, constant)
        return self.geometry.product(x, weights, constant, 0.0)


class BlockAverageLayer(BlockLayer):
    """An average of windows after its quantiser. Arguments are those of `BlockLayer`."""

    def _begin(self, part):
        self.register_buffer("share", torch.full(self.geometry.shape, 1 / prod(part.window.size)))

    def _one(self) -> float:
        """The number by which the machine multiplies each pixel."""
        mantissa, exponent = identity(self.weights_format)
        return mantissa * 2.0 ** (exponent - (self.weights_format.bits - 1))

    def _weights(self):
        return torch.full_like(self.share, self._one())

    def _real(self, x):
        return self._product(x, self.share, None)

    def _finished(self, y):
        scale = reciprocal(self._one() * prod(self.geometry.window.size))
        return binary16(y * float(scale.view(np.float16)))

    def write(self, arithmetic, name):
        """There are no numbers."""
