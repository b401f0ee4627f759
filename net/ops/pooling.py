"""Maxima and means of windows of images, and the mean of a whole image."""

from dataclasses import asdict, dataclass

import numpy as np
from concord.net.arithmetic.windows import Window
from concord.net.ops import checks
from concord.net.ops.operator import Operator


class Pooling(Operator):
    """One number for each channel at each position of a window."""

    __slots__ = ()

    window: Window

    def shape(self, x):
        return (checks.image(x)[0], *checks.positions(self.window, x))

    def attributes(self):
        return asdict(self.window)

    @classmethod
    def restored(cls, attributes, tensors):
        others = dict(attributes)
        window = Window(**{key: others.pop(key) for key in ("size", "stride", "dilation", "padding")})
        return cls(window=window, **others)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MaxPooling(Pooling):
    """The largest number of each window; padding never is the largest.

    Attributes:
        window: The window.
    """

    window: Window

    kind = "max_pool"

    def __post_init__(self):
        checks.window(self.window)

    def real(self, x, lengths):
        return self.window.seen(self.window.bordered(x, -np.inf)).max(axis=(4, 5))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AveragePooling(Pooling):
    """The mean of each window.

    Attributes:
        window:        The window.
        count_padding: Whether the zeros of the padding count.
    """

    window: Window
    count_padding: bool

    kind = "average_pool"

    def __post_init__(self):
        checks.window(self.window)
        checks.number(count_padding=self.count_padding)

    def real(self, x, lengths):
        sums = self.window.seen(self.window.bordered(x, 0.0)).sum(axis=(4, 5))
        counted = self.window.bordered(np.ones((1, 1, *x.shape[2:])), float(self.count_padding))
        return sums / self.window.seen(counted).sum(axis=(4, 5))

    def attributes(self):
        return {**asdict(self.window), "count_padding": self.count_padding}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProductResult(AveragePooling):
    """The result of a product, which is quantised by itself: an image as it is, a vector as an image of one pixel.

    In real numbers it is the mean of single pixels, and so changes nothing.
    """

    window: Window = Window(size=(1, 1))
    count_padding: bool = True

    kind = "product_result"

    def shape(self, x):
        return (*x, 1, 1) if len(x) == 1 else checks.image(x)

    def real(self, x, lengths):
        return x[..., None, None] if x.ndim == 2 else x


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class GlobalAverage(Operator):
    """The mean of each channel of an image, a vector."""

    kind = "global_average"

    def shape(self, x):
        return checks.image(x)[:1]

    def real(self, x, lengths):
        return x.mean(axis=(2, 3))
