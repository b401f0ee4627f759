"""A convolution or dense layer in block floating point, in real numbers or in the machine's arithmetic.

Source: numerics.md of the specification, block floating point and matrix-vector product.
"""

from dataclasses import replace

import numpy as np
import torch
from concord.net.arithmetic.windows import Window
from concord.net.layers.convolution import Along, BlockConv, seen
from concord.net.layers.dense import BlockDense
from concord.net.lowering import block_lowering
from concord.net.lowering.lowering import recorded
from concord.net.quantize import tensors
from concord.net.quantize.block_recipe import BlockRecipe
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format
from concord.train.lib.curves import curve
from concord.train.lib.straight_through import binary16
from concord.train.qat.block_quantizer import Blocks
from concord.train.qat.geometry import Geometry
from torch import nn
from torch.nn import functional

#: Integers below this are exact in float64.
FLOAT64_EXACT = 1 << 53


class BlockLayer(nn.Module):
    """A convolution or dense layer, in real numbers behind its quantisers or in the machine's arithmetic.

    The real weights are what is trained; each forward pass brings them to binary16 and to blocks.

    Args:
        layer:   nn.Conv2d or nn.Linear, with batch normalisation folded in.
        samples: float32[samples, ...], the inputs of the layer for a calibration set.
        recipe:  How the layer is quantised.
        name:    Name of the layer, for its bits and for messages.
        window:  Window of a convolution, or None for a dense layer.
        places:  Places of its inputs or channels in native vectors, see `net.layers.rows.BlockRows`.
        patch:   Whether a block lies along a patch, rather than along channels.

    Attributes:
        activation: Activation function of the result.
        lost:       Loss by quantisation, in words.
    """

    #: No quantiser has parameters, since exponents follow the numbers.
    inputs = None

    def __init__(
        self, layer: nn.Conv2d | nn.Linear, samples: torch.Tensor, recipe: BlockRecipe, name: str,
        window: Window | None = None, places: np.ndarray | None = None, patch: bool = False,
    ):
        super().__init__()
        self.geometry, self.name, self.block = Geometry(layer, window), name, recipe.block
        self.activation = Activation.NONE
        self.places, self.patch = places, patch
        self.weights_format, self.input_format = recipe.formats(name)
        self.weight = nn.Parameter(layer.weight.detach().clone())
        self.bias = nn.Parameter(torch.zeros(len(self.weight)) if layer.bias is None else layer.bias.detach().clone())
        self.fp32 = {"weights": self.weight.detach().numpy().copy(), "bias": self.bias.detach().numpy().copy()}
        if not self.geometry.dense:
            groups, channels = self.geometry.groups, self.weight.shape[1] * self.geometry.groups
            self.columns = torch.from_numpy(seen(len(self.weight), channels, groups))[:, :, None, None]
        with torch.no_grad():
            self.lost = ", ".join(self._lost(samples))

    def _lost(self, samples):
        x = self._vectors(samples)
        y = self._blocks(x, self.input_format)
        weights = self._weights().view(self.weight.shape).numpy()
        yield f"weights {tensors.decibels(self.weight.numpy(), weights):.1f} dB"
        yield f"inputs {tensors.decibels(x.numpy(), y.numpy()):.1f} dB"
        yield f"{(x.abs() >= 2.0**self.input_format.e_max).double().mean():.1%} beyond the exponents"

    def forward(self, x: torch.Tensor, lowered: bool = False):
        """The result in real numbers, or in the machine's arithmetic if `lowered`."""
        x = self._blocks(self._vectors(x), self.input_format)
        if not lowered:
            y = self._real(x)
            return curve(self.activation, False)(y)
        weights = self._weights()
        self._check(weights)
        y = self._finished(binary16(self._product(x.double(), weights.double(), None) + 0.0))
        return curve(self.activation, True)(y)

    def _real(self, x):
        """The result in real numbers for quantised inputs, before the relu."""
        return self._product(x, self._weights(), self.bias)

    def _finished(self, y):
        """What becomes of products in binary16 before the relu."""
        return binary16(y + binary16(self.bias).view(-1, *[1] * (y.dim() - 2)) + 0.0)  # -0 becomes +0

    def _blocks(self, x, fmt: Format, stops: bool = True):
        """The tensor, quantised in the native vectors along axis 1 in which its elements lie; see `Blocks`."""
        if self.places is None:
            return Blocks.apply(x, fmt, self.block, 1, stops)
        at = torch.from_numpy(self.places).long()
        whole = x.new_zeros(len(x), int(at.max()) + 1, *x.shape[2:]).index_copy(1, at, x)
        return Blocks.apply(whole, fmt, self.block, 1, stops).index_select(1, at)

    def _vectors(self, x):
        """The input with the elements of a block along axis 1."""
        if self.geometry.dense:
            return x.flatten(1)
        return self._patches(x) if self.patch else x

    def _patches(self, x):
        """Patches of the input, [samples, rows of a window * columns of a window * channels, *places]."""
        window = self.geometry.window
        places, padded = window.counts(*x.shape[2:]), functional.pad(x, self.geometry.around)
        found = functional.unfold(padded, window.size, window.dilation, stride=window.stride)
        return found.unflatten(1, (x.shape[1], -1)).transpose(1, 2).flatten(1, 2).unflatten(2, places)

    def _weights(self):
        """The quantised weights: float32 in their own shape, or [outputs, columns, 1, 1] for blocks along a patch."""
        weights = binary16(self.weight)
        if self.patch:
            weights = weights.permute(0, 2, 3, 1).flatten(1)[:, :, None, None]
        if self.geometry.dense or self.geometry.groups == 1:
            return self._blocks(weights, self.weights_format)
        columns = self.columns.expand_as(weights)
        placed = weights.new_zeros(len(weights), weights.shape[1] * self.geometry.groups, *weights.shape[2:])
        # A weight that is alone in its block is always the largest: if its gradient stopped there, it would stay there.
        placed = self._blocks(placed.scatter(1, columns, weights), self.weights_format, False)
        return placed.gather(1, columns)

    def _product(self, x, weights, constant):
        if self.patch:
            return functional.conv2d(x, weights, constant)
        return self.geometry.product(x, weights, constant, 0.0)

    def _check(self, weights):
        """Refuse layers whose sums float64 may not hold, for the largest inputs and the smallest units."""
        unit = sum(fmt.e_min - (fmt.bits - 1) for fmt in (self.weights_format, self.input_format))
        with torch.no_grad():
            largest = weights.double().abs().flatten(1).sum(1).max().item() * 2.0**self.input_format.e_max
        if largest * 2.0**-unit >= FLOAT64_EXACT:
            raise ValueError(f"layer {self.name!r}: sums up to {largest:.3g} in units of 2**{unit} are not exact in "
                             "float64; use fewer bits or a smaller range of exponents")

    def parts(self) -> tuple[list, list]:
        """Trained parameters: those of the layer; its quantisers have none."""
        return [self.weight, self.bias], []

    def lower(self, shape: tuple[int, ...]) -> BlockDense | BlockConv:
        """The layer of the model that computes what `forward` does, for inputs of this shape."""
        same = {
            "name": self.name, "weights": self.weight.detach().numpy(), "bias": self.bias.detach().numpy(),
            "weights_format": self.weights_format, "input_format": self.input_format, "block": self.block,
            "places": self.places, "activation": self.activation}
        if self.geometry.dense:
            made = block_lowering.block_dense(**same)
        else:
            along = Along.PATCH if self.patch else Along.CHANNELS
            made = block_lowering.block_conv(**same, **self.geometry.fields, shape=shape, along=along)
        return replace(made, real=recorded(self.fp32))
