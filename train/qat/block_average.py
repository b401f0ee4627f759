"""Averages of windows in block floating point, whose inputs are quantised; nothing of them is trained."""

from math import prod

import numpy as np
import torch
from concord.net.arithmetic.windows import reciprocal
from concord.net.layers.pooling import identity
from concord.train.lib.straight_through import binary16
from concord.train.qat.block_layer import BlockLayer


class BlockAverageLayer(BlockLayer):
    """An average of windows behind its quantiser. Arguments are those of `BlockLayer`."""

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
