"""What a row's sum is multiplied by and what is added to it, under training in real numbers.

Source: S0; numerics.md of the specification, integer mode, item 4.
"""

import torch
from torch.autograd import Function

from train.qat.activations import Activations


class Scales(Function):
    """S = gain * s_in / s_out and T = (constant + gain * m_in * total - m_out) / s_out, with s = b / levels.

    One function with gradients by hand, in float64: the thirty of a few numbers each that PyTorch would make of it take
    longer than a small layer's products.
    """

    @staticmethod
    def forward(ctx, gain, constant, total, levels, *ranges):
        """
        Args:
            gain, constant, total: [rows]; None for a `total` of 0.
            levels: Of the codes that come in, and of those that go out; None stands for real units.
            ranges: b_in, m_in, b_out and m_out; None where `levels` is.

        Returns:
            S and T, float32[rows].
        """
        into, out = (_Range(*parts) for parts in zip(levels, ranges[::2], ranges[1::2], strict=True))
        constant = constant.double()
        total = torch.zeros_like(constant) if total is None else total.double()
        scale = gain * (into.step / out.step)
        offset = constant if into.offset == 0 else torch.addcmul(constant, gain, total, value=into.offset)
        offset = (offset - out.offset) / out.step
        ctx.save_for_backward(gain, total, scale, offset)
        ctx.into, ctx.out = into, out
        return scale.float(), offset.float()

    @staticmethod
    def backward(ctx, of_scale, of_offset):
        gain, total, scale, offset = ctx.saved_tensors
        into, out = ctx.into, ctx.out
        of_scale, of_offset = of_scale.double(), of_offset.double() / out.step
        of_gain = of_scale * (into.step / out.step)
        of_total = of_in = of_m_in = of_out = of_m_out = None
        along = torch.dot(of_gain, gain)  # dL/dS * S, summed
        if into.offset:
            of_gain = torch.addcmul(of_gain, of_offset, total, value=into.offset)
            of_total = of_offset * gain * into.offset
        if into.levels:
            of_in = along / into.saturation
            of_m_in = torch.sum(of_offset * gain * total) if ctx.needs_input_grad[5] else None
        if out.levels:
            of_out = -(along + torch.dot(of_offset, offset) * out.step) / out.saturation
            of_m_out = -of_offset.sum()
        return of_gain, of_offset, of_total, None, of_in, of_m_in, of_out, of_m_out


class _Range:
    """A quantiser's numbers, or those of real units."""

    def __init__(self, levels: int | None, saturation, offset):
        self.levels = levels
        self.saturation = saturation.item() if levels else 1.0
        self.step = self.saturation / (levels or 1)
        self.offset = offset.item() if levels else 0.0


def scales(gain, constant, total, into: Activations | None, out: Activations | None):
    """S and T, float32[rows], between two quantisers, or real units where there is none."""
    levels = tuple(part and part.levels for part in (into, out))
    ranges = [value for part in (into, out) for value in (
        (part.trained_saturation, part.offset) if part else (None, None))]
    return Scales.apply(gain, constant, total, levels, *ranges)
