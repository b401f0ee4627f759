"""Averages of windows in block floating point, whose inputs are quantised; nothing of them is trained."""

from math import prod

import numpy as np
import torch
from concord.net.arithmetic.windows import reciprocal
from concord.net.layers.average import BlockAverage, identity
from concord.net.lowering import block_lowering
from concord.net.quantize import tensors
from concord.train.lib.straight_through import binary16
from concord.train.qat.block_layer import BlockLayer


class BlockAverageLayer(BlockLayer):
    """An average of windows behind its quantiser. Arguments are those of `BlockLayer`, for an `average.convolution`."""

    def __init__(self, *given):
        super().__init__(*given)
        self.requires_grad_(False)

    def _lost(self, samples):
        y = self._blocks(samples, self.input_format)
        yield f"inputs {tensors.decibels(samples.numpy(), y.numpy()):.1f} dB"

    def _one(self) -> float:
        """The number by which the machine multiplies each pixel."""
        mantissa, exponent = identity(self.weights_format)
        return mantissa * 2.0 ** (exponent - (self.weights_format.bits - 1))

    def _weights(self):
        return torch.full_like(self.weight, self._one())

    def _real(self, x):
        return self._product(x, self.weight, None)

    def _finished(self, y):
        scale = reciprocal(self._one() * prod(self.geometry.window.size))
        return binary16(y * float(scale.view(np.float16)))

    def parts(self):
        return [], []

    def lower(self, shape: tuple[int, ...]) -> BlockAverage:
        """The layer of the model that computes what `forward` does, for inputs of this shape."""
        window = self.geometry.window
        return block_lowering.block_average(
            name=self.name, shape=shape, size=window.size, stride=window.stride, padding=window.padding,
            weights_format=self.weights_format, input_format=self.input_format, block=self.block, places=self.places,
            activation=self.activation)
