"""Geometry of layers that read an image through windows.

An image is uint16[samples, channels * rows * columns] of binary16 patterns, ordered by channel, then by row.
"""

from math import prod

import numpy as np
from concord.model.arithmetic import windows
from concord.model.layers import checks


class Windows:
    """Geometry of windows, for a layer with the fields `shape`, `stride` and `padding`."""

    __slots__ = ()

    @property
    def window(self) -> tuple[int, int]:
        """Rows and columns of a window."""
        raise NotImplementedError

    @property
    def channels(self) -> int:
        """Channels of the output."""
        raise NotImplementedError

    @property
    def made(self) -> tuple[int, int, int]:
        """Channels, rows and columns of the output."""
        return self.channels, *checks.counts(self, self.window)

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
        return windows.padded(x.reshape(len(x), *self.shape), self.padding, value)


class Kernels(Windows):
    """Geometry of a convolution, for a layer that has the field `groups` as well.

    Its weights are [outputs, channels / groups, rows, columns].
    """

    __slots__ = ()

    def per_channel(self, values):
        return values[:, None, None]

    def at_places(self, x):
        return windows.patches(x, self.window, self.stride, self.groups)

    def placed(self, y):
        places = prod(self.made[1:])
        return y.reshape(-1, places, self.channels).swapaxes(1, 2).reshape(-1, self.outputs)

    def weights_shape(self, name: str) -> tuple[int, int, int, int]:
        return checks.kernels(self, name)

    @property
    def channels_in(self) -> int:
        return self.shape[0]
