"""Products of a convolution or dense layer with its input, forward and backward."""

from collections.abc import Sequence
from math import prod

import torch
from concord.net.arithmetic.windows import Window
from concord.net.quantize.plan import AVERAGES, Part
from concord.train.qat.normalisation import EPSILON, MOMENTUM, Normalisation
from torch.nn import functional

_BACK, _NORM_BACK = torch.ops.aten.convolution_backward, torch.ops.aten.native_batch_norm_backward


class Geometry:
    """The products of a layer: shape, window and groups.

    Args:
        shape:  Shape of the weights.
        window: Window of a convolution, or None for a dense layer.
        groups: Groups of channels of a convolution.
    """

    def __init__(self, shape: Sequence[int], window: Window | None = None, groups: int = 1):
        self.dense, self.shape, self.window, self.groups = window is None, tuple(shape), window, groups
        if window is not None:
            above, below, left, right = window.padding
            self.around = left, right, above, below
            #: Padding that a convolution of PyTorch does itself, if it is one of zeros.
            self.even = (above, left) if (above, left) == (below, right) else None

    @classmethod
    def of(cls, part: Part) -> "Geometry":
        """The products of a part of a plan; an average sums each channel of a window with weights of 1."""
        if isinstance(part.op, AVERAGES):
            channels = part.shapes[0][0]
            return cls((channels, 1, *part.window.size), part.window, channels)
        return cls(part.op.weight.shape, part.window, getattr(part.op, "groups", 1))

    @property
    def padded(self) -> bool:
        """Whether zeros are put around the input."""
        return not self.dense and any(self.around)

    def shaped(self, rows):
        """Rows of weights in the layer's own shape. Channels lie innermost, where convolutions are twice as fast."""
        made = rows.view(self.shape)
        return made if self.dense else made.clone(memory_format=torch.channels_last)

    @property
    def columns(self) -> int:
        """Number of products of a row."""
        return prod(self.shape[1:])

    def product(self, x, weights, constant, border: float):
        """Rows times inputs, plus a constant for each row; the padding of the input has the value `border`."""
        if self.dense:
            return functional.linear(x, weights, constant)
        x, padding = self._bordered(x, border)
        return functional.conv2d(
            x, weights, constant, self.window.stride, padding, self.window.dilation, self.groups)

    def _bordered(self, x, border):
        """The input, and the padding of zeros that is left to the convolution."""
        if self.padded and (border or self.even is None):
            return functional.pad(x, self.around, value=border), (0, 0)
        return x, self.even

    def patches(self, x, border: float):
        """The patch of the input at each position of a convolution, [groups, samples * positions, columns]."""
        padded = functional.pad(x, self.around, value=border)
        seen = functional.unfold(padded, self.shape[2:], self.window.dilation, stride=self.window.stride)
        return seen.unflatten(1, (self.groups, -1)).permute(1, 0, 3, 2).flatten(1, 2)

    def product_back(self, gradient, x, weights, border: float, wanted: tuple[bool, bool, bool]):
        """Gradients of the input, of the weights and of the constant of each row, or None for those not wanted."""
        if self.dense:
            return (gradient @ weights if wanted[0] else None, gradient.T @ x if wanted[1] else None,
                    gradient.sum(0) if wanted[2] else None)
        x, padding = self._bordered(x, border)
        of_x, *others = _BACK(gradient, x, weights, [len(weights)], self.window.stride, padding, self.window.dilation,
                              False, [0] * 2, self.groups, list(wanted))
        if wanted[0] and padding != self.even:
            of_x = self.window.inside(of_x)
        return of_x, *others

    def scaled(self, x, weights, scale, constant, border: float, norm: Normalisation | None) -> tuple:
        """Rows times inputs times a scale for each row, plus a constant, and what `scaled_back` needs besides.

        With `norm`, the products of the batch are normalised: scale and constant are their new deviation and mean.
        """
        if norm:
            sums = self.product(x, weights, None, border)
            y, *statistics = torch.native_batch_norm(
                sums, scale, constant, norm.mean, norm.variance, _several(sums), MOMENTUM, EPSILON)
            return y, sums, *statistics
        if self.dense:  # results are fewer than weights
            sums = functional.linear(x, weights)
            return torch.addcmul(constant, sums, scale), sums
        made = weights * _columns(scale)
        return self.product(x, made, constant, border), made

    def scaled_back(self, gradient, x, weights, scale, border: float, norm: Normalisation | None, kept, wanted):
        """Gradients of the input and of the weights, where they are wanted, of the scale and of the constant."""
        if norm:
            sums, *statistics = kept
            gradient, of_scale, of_constant = _NORM_BACK(
                gradient, sums, scale, norm.mean, norm.variance, *statistics, _several(sums), EPSILON,
                [True] * 3)
            of_x, of_weights, _ = self.product_back(gradient, x, weights, border, (*wanted, False))
        elif self.dense:
            of_scale, of_constant = (gradient * kept[0]).sum(0), gradient.sum(0)
            of_x, of_weights, _ = self.product_back(gradient * scale, x, weights, border, (*wanted, False))
        else:
            of_x, of_made, of_constant = self.product_back(gradient, x, kept[0], border, (wanted[0], True, True))
            of_scale, of_weights = (of_made * weights).sum((1, 2, 3)), of_made * _columns(scale)
        return of_x, of_weights, of_scale, of_constant


def _several(sums) -> bool:
    """Whether a batch has several sums of each row. A single one has no variance, so the running statistics hold."""
    return sums.numel() > sums.shape[1]


def _columns(rows):
    return rows.view(-1, 1, 1, 1)
