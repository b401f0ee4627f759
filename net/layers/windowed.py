"""Geometry of layers that read an image through windows.

An image is uint16[samples, channels * rows * columns] of binary16 patterns, ordered by channel, then by row.
"""

from math import prod

import numpy as np
from concord.net.arithmetic.windows import Window
from concord.net.layers import checks


class Windows:
    """Geometry of windows, for a layer with `shape`, `size`, `stride`, `padding` and `dilation`, see `Window`."""

    __slots__ = ()

    @property
    def channels(self) -> int:
        """Channels of the output."""
        raise NotImplementedError

    @property
    def window(self) -> Window:
        """The window that moves over the image."""
        return Window(size=self.size, stride=self.stride, dilation=self.dilation, padding=self.padding)

    @property
    def made(self) -> tuple[int, int, int]:
        """Channels, rows and columns of the output."""
        return self.channels, *self.window.counts(*self.shape[1:])

    @property
    def inputs(self) -> int:
        return prod(self.shape)

    @property
    def outputs(self) -> int:
        return prod(self.made)

    @property
    def entering(self) -> tuple[int, int, int]:
        return self.shape

    def bordered(self, x: np.ndarray, value) -> np.ndarray:
        """The images of [samples, inputs] with their padding: [samples, channels, rows, columns]."""
        return self.window.bordered(x.reshape(len(x), *self.shape), value)

    def unbordered(self, x: np.ndarray) -> np.ndarray:
        """Images with padding, without it: [samples, inputs]."""
        return self.window.inside(x).reshape(len(x), -1)


class Kernels(Windows):
    """Geometry of a convolution, for a layer that has the field `groups` as well.

    Its weights are [outputs, channels / groups, rows, columns].
    """

    __slots__ = ()

    def per_channel(self, values):
        return values[:, None, None]

    def at_places(self, x):
        return self.window.patches(x, self.groups)

    def placed(self, y):
        places = prod(self.made[1:])
        return y.reshape(-1, places, self.channels).swapaxes(1, 2).reshape(-1, self.outputs)

    def weights_shape(self, name: str) -> tuple[int, int, int, int]:
        return checks.kernels(self, name)

    @property
    def channels_in(self) -> int:
        return self.shape[0]
