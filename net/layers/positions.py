"""Layers of images whose pixels are the positions of a transformer: constants that are added, or come first."""

from dataclasses import dataclass
from math import prod

import numpy as np
from concord.golden.lib import float16
from concord.net.arithmetic.integer import IntegerProduct
from concord.net.layers import checks
from concord.net.layers.layer import Layer, Trace


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PixelOffsets(Layer):
    """An image plus a constant for each channel of each pixel, rounded.

    Attributes:
        name:   Name of the layer, unique in its model.
        offset: uint16[channels, rows, columns], binary16 patterns.
    """

    name: str
    offset: np.ndarray

    title = "offsets of pixels"

    def __post_init__(self):
        if self.offset.ndim != 3:
            raise ValueError(f"layer {self.name!r}, offset: channels, rows and columns are needed, not "
                             f"{self.offset.shape}; export the model again")
        checks.array(self, "offset", np.uint16, self.offset.shape)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, rows and columns of the image."""
        return self.offset.shape

    @property
    def entering(self) -> tuple[int, int, int]:
        return self.shape

    @property
    def inputs(self) -> int:
        return self.offset.size

    @property
    def outputs(self) -> int:
        return self.offset.size

    def run(self, x, lengths, sums=IntegerProduct.totals):
        return Trace(outputs=float16.add(x[0], np.broadcast_to(self.offset.reshape(-1), x[0].shape)))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ConstantPositions(Layer):
    """An image as one row of positions behind some constant ones.

    Attributes:
        name:   Name of the layer, unique in its model.
        shape:  Channels, rows and columns of the image.
        tokens: uint16[channels, constant positions], binary16 patterns.
    """

    name: str
    shape: tuple[int, int, int]
    tokens: np.ndarray

    title = "constant positions"

    def __post_init__(self):
        channels = checks.image_shape(self)
        if self.tokens.ndim != 2 or not self.tokens.size:
            raise ValueError(f"layer {self.name!r}, tokens: channels and positions are needed, not "
                             f"{self.tokens.shape}; export the model again")
        checks.array(self, "tokens", np.uint16, (channels, self.tokens.shape[1]))

    @property
    def entering(self) -> tuple[int, int, int]:
        return self.shape

    @property
    def inputs(self) -> int:
        return prod(self.shape)

    @property
    def made(self) -> tuple[int, int, int]:
        """Channels, rows and columns of the result."""
        return self.shape[0], 1, self.tokens.shape[1] + self.shape[1] * self.shape[2]

    @property
    def outputs(self) -> int:
        return prod(self.made)

    def run(self, x, lengths, sums=IntegerProduct.totals):
        constant = np.broadcast_to(self.tokens, (len(x[0]), *self.tokens.shape))
        rows = [constant, x[0].reshape(len(x[0]), self.shape[0], -1)]
        return Trace(outputs=np.concatenate(rows, axis=2).reshape(len(x[0]), -1))
