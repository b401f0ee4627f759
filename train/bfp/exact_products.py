"""Exact sums over products of integers, by kernels whose floating point type holds them.

x holds int8, w float32 integers of 8 bits, g integers of 16 bits for the gradient of an input and of up to 32 bits for
that of weights, of any type. Convolutions take w[outputs, channels, *size]; dense layers are matrices.
"""

import torch
from torch.nn import functional

#: Integers below these are exact in float32 and in float64.
FLOAT32_EXACT, FLOAT64_EXACT = 1 << 24, 1 << 53
_BACK = torch.ops.aten.convolution_backward
LOW_BITS = 16


def _type(bound: float) -> torch.dtype:
    return torch.float32 if bound < FLOAT32_EXACT else torch.float64


def _top(t: torch.Tensor) -> float:
    return max(-float(t.amin()), float(t.amax())) if t.numel() else 0.0


class Floating:
    """Kernels in float32 where a bound on the sums shows that they are exact, else in float64."""

    def prepare(self, g, top: int):
        """A gradient in the form that the other methods take.

        Args:
            g:   The gradient, of integers.
            top: Bound of the gradient: -top - 1 <= g <= top.
        """
        return g

    def convolve(self, x, w, bias, stride: int, padding: int):
        """Sums of a convolution, and the form of x that `convolve_weight` takes.

        Args:
            bias: float64[outputs], integers in the unit of the sums.
        """
        dtype = _type(float(w.abs().sum((1, 2, 3)).max()) * _top(x) + _top(bias))
        with torch.backends.cudnn.flags(enabled=False):
            return functional.conv2d(x.to(dtype), w.to(dtype), bias.to(dtype), stride, padding), x

    def convolve_input(self, g, w, shape, stride: int, padding: int):
        """Gradient of the input, which has this shape."""
        row, like = float(w.abs().sum((0, 2, 3)).max()), torch.empty(shape, device=g.device)

        def sums(part, dtype):
            return self._back(part, like, w, stride, padding, dtype, (True, False))[0]

        if row * _top(g) < FLOAT32_EXACT or row >= FLOAT32_EXACT >> 8:
            return sums(g, _type(row * _top(g)))
        high = (g.float() / 256).floor_()  # float32 by two bytes is quicker than float64
        return sums(high, torch.float32).double() * 256 + sums(g - high * 256, torch.float32)

    def convolve_weight(self, g, x, size: int, stride: int, padding: int):
        """int64: gradients of weights and bias."""
        w = torch.empty(g.shape[1], x.shape[1], size, size, device=g.device)

        def sums(part, dtype):
            return self._back(part, x, w, stride, padding, dtype, (False, True))[1].long()

        return _limbs(g, x, g[:, 0].numel(), sums), g.double().sum((0, 2, 3)).long()

    def dense(self, x, w, bias):
        """x @ w.T + bias, and the form of x that `dense_weight` takes."""
        dtype = _type(float(w.abs().sum(1).max()) * _top(x) + _top(bias))
        return functional.linear(x.to(dtype), w.to(dtype), bias.to(dtype)), x

    def dense_input(self, g, w):
        """g @ w."""
        dtype = _type(float(w.abs().sum(0).max()) * _top(g))
        return g.to(dtype) @ w.to(dtype)

    def dense_weight(self, g, x):
        """int64: g.T @ x, and the sum of g."""
        def sums(part, dtype):
            return (part.to(dtype).T @ x.to(dtype)).long()

        return _limbs(g, x, len(g), sums), g.double().sum(0).long()

    @staticmethod
    def _back(g, x, w, stride, padding, dtype, wanted):
        with torch.backends.cudnn.flags(enabled=False):
            tensors = (t.to(dtype) for t in (g, x, w))
            return _BACK(*tensors, None, [stride] * 2, [padding] * 2, [1] * 2, False, [0] * 2, 1, [*wanted, False])


def _limbs(g, x, terms: int, sums):
    """Sums of `terms` products with g. They are computed in two parts if float64 does not hold them."""
    bound = terms * _top(g) * _top(x)
    if bound < FLOAT64_EXACT:
        return sums(g, _type(bound))
    high = (g.double() * 2.0**-LOW_BITS).floor_()
    return (sums(high, torch.float64) << LOW_BITS) + sums(g - high * 2.0**LOW_BITS, torch.float64)
