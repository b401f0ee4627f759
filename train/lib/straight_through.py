"""Rounding with straight-through gradients: the machine's values forward, the gradients of the source backward."""

from functools import cache

import numpy as np
import torch
from concord.net.arithmetic.integer import largest_sum
from concord.net.lowering import lowering
from concord.spec.numbers.formats import Format
from torch.autograd import Function

#: Integers below this are exact in float32.
FLOAT32_EXACT = 1 << 24


class Binary16(Function):
    """Round once to binary16; the gradient passes unchanged."""

    @staticmethod
    def forward(ctx, x):
        if x.dtype == torch.float32:
            return x.half().float()
        # torch takes float64 to half by way of float32, which rounds twice; numpy rounds once.
        with np.errstate(over="ignore"):
            return torch.from_numpy(x.numpy().astype(np.float16)).float()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def passed(gradient, x, lowest: float, highest: float):
    """The gradient where lowest <= x <= highest, and 0 elsewhere."""
    return torch.ops.aten.hardtanh_backward(gradient, x, *_around(lowest, highest))


@cache
def _around(lowest: float, highest: float) -> tuple[float, float]:
    """The float32 numbers next to a range on either side: the fused operation excludes the ends of its range."""
    below, above = np.nextafter(np.float32([lowest, highest]), np.float32([-np.inf, np.inf]))
    return float(below), float(above)


def inner(a, b):
    """The sum of the products of two tensors, in one pass if both have the same layout in memory."""
    if a.dim() == 4 and a.is_contiguous(memory_format=torch.channels_last):
        a, b = a.permute(0, 2, 3, 1), b.permute(0, 2, 3, 1)
    alike = a.is_contiguous() and b.is_contiguous()
    return torch.dot(a.view(-1), b.view(-1)) if alike else (a * b).sum()


class Round(Function):
    """Round to the nearest integer, ties to even, and clip; the gradient passes inside the range only."""

    @staticmethod
    def forward(ctx, x, lowest, highest):
        ctx.save_for_backward(x)
        ctx.ends = lowest, highest
        return x.round().clamp_(lowest, highest)

    @staticmethod
    def backward(ctx, gradient):
        return passed(gradient, *ctx.saved_tensors, *ctx.ends), None, None


class Damped(Function):
    """The value itself, whose gradient is multiplied by a factor."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


class CodesFunction(Function):
    """Unsigned codes u = clip(round(y), 0, levels) of y = (x - m) / s, with the source's gradients for m and b.

    With b = levels * s, the value Q = u * s + m that a layer sees must have dQ/dx = 1 inside the range and 0 outside,
    dQ/db = 1 above it and 0 elsewhere, dQ/dm = 0 inside and 1 outside. What y and u * s + m give by the chain rule
    differs from that only in the rounding error u - y inside the range, which is taken back here.

    Source: S0, activations, backward.
    """

    @staticmethod
    def forward(ctx, y, saturation, levels):
        codes = y.round().clamp_(0, levels)
        ctx.save_for_backward(y, saturation, *[codes] * ctx.needs_input_grad[1])
        ctx.levels = levels
        return codes

    @staticmethod
    def backward(ctx, gradient):
        y, saturation, *codes = ctx.saved_tensors
        gradient = passed(gradient, y, 0, ctx.levels)
        if not codes:
            return gradient, None, None
        error = inner(codes[0] - y.clamp(0, ctx.levels), gradient)  # y may be infinite, where the gradient is 0
        return gradient, -error / saturation, None


def binary16(x):
    return Binary16.apply(x)


def plain(x):
    """The values as float32: it replaces `binary16` where training is in real numbers."""
    return x.float()


class LoweredProduct:
    """An integer product of a layer and its requantisation, by the lowering of the model.

    Args:
        weights:  Integer weights[rows, columns], with their gradient.
        fmt:      Format of the codes that the weights multiply.
        unsigned: Whether the codes are unsigned before they are lowered by half their range, see `lowering.dense`.
        gain:     float64[rows].
        constant: float64[rows].
        units:    s_in, m_in, s_out and m_out of `lowering.requantization`.
        rounded:  `binary16`, or `plain` for training in real numbers.
        biases:   Integers[rows] that the accumulator adds, with their gradient; None for none.
        result:   Format of the codes that the product becomes, and the least right shift; None for binary16.
    """

    def __init__(self, weights, fmt: Format, unsigned: bool, gain, constant, units: dict, rounded, biases=None,
                 result: tuple[Format, int] | None = None):
        integers = weights.detach().numpy()
        start = lowering.start_values(integers, fmt, unsigned)
        start = start if biases is None else start + biases.detach().numpy().astype(np.int64)
        self.p = lowering.right_shift(integers, start, fmt, unsigned)
        self.result, least = result or (None, self.p)
        self.p = max(self.p, least)
        if self.result is None:
            self.p = lowering.of_normal_scales(self.p, (gain * units["s_in"] / units["s_out"]).detach())
        exact = largest_sum(integers, start, lowering.largest_code(fmt, unsigned)) < FLOAT32_EXACT
        self.weights = weights if exact else weights.double()
        self.biases = 0.0 if biases is None else biases.to(self.weights.dtype) + 0.0  # -0 becomes +0
        scale, offset = lowering.requantization(gain, constant, weights.double().sum(1), p=self.p, **units)
        self.scale, self.offset, self.rounded = rounded(scale), rounded(offset) + 0.0, rounded  # -0 becomes +0

    def scaled(self, codes):
        """a * S of float32[..., columns] integer codes."""
        total = codes.to(self.weights.dtype) @ self.weights.T + self.biases
        a = self.rounded(total * 2.0**-self.p)
        if self.result is not None:
            a = Round.apply(a, self.result.lowest, self.result.highest) + 0.0  # -0 becomes +0
        return self.rounded(a * self.scale)

    def __call__(self, codes):
        """a * S + T."""
        return self.rounded(self.scaled(codes) + self.offset)
