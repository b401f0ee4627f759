"""The forward pass of a quantised layer in real numbers, as one function with gradients by hand.

PyTorch would record fifty small operations instead, which take longer than the products of a small layer.

Source: S0 and its gradients; numerics.md of the specification, integer mode, item 4.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from concord.train.lib.straight_through import inner, passed
from concord.train.qat.activations import Activations, SignedCodes
from concord.train.qat.geometry import Geometry
from concord.train.qat.normalisation import Normalisation
from concord.train.qat.weights import TrainedWeights
from torch.autograd import Function


@dataclass(slots=True)
class Range:
    """The numbers of a quantiser: x = step * code + offset. By default there is no quantiser, and units are real."""

    ends: tuple[int, int] | None = None
    step: float = 1.0
    saturation: float = 1.0
    offset: float = 0.0
    learned_step: bool = False
    damping: float = 1.0

    @classmethod
    def of(cls, quantizer: Activations | SignedCodes | None) -> "Range":
        if not quantizer:
            return cls()
        return cls(quantizer.ends, quantizer.step.item(), quantizer.saturation.item(), quantizer.offset.item(),
                   quantizer.learned_step, quantizer.damping)


@dataclass(slots=True)
class AffineSettings:
    """The settings of a layer, which are not trained.

    Attributes:
        geometry: Products of rows and inputs.
        into:     Quantiser of the layer's input.
        out:      Quantiser in whose steps the layer's result is.
        in_steps: Whether the input arrives in steps of its code, rather than in real units.
        border:   Code of a real zero, for the padding of the input.
        norm:     Batch normalisation by the statistics of the batch, or None.
        rows:     Quantiser of the weights, or None where weights stay in FP32.
    """

    geometry: Geometry
    into: Range
    out: Range
    in_steps: bool
    border: float
    norm: Normalisation | None
    rows: TrainedWeights | None


class Wanted(NamedTuple):
    """Which gradients `AffineFunction` has to compute."""

    x: bool
    weight: bool
    change: bool
    gain: bool
    constant: bool
    b_in: bool
    m_in: bool
    b_out: bool
    m_out: bool
    settings: bool


class AffineFunction(Function):
    """y = S * (integers x codes) + T: S = gain * s_in / s_out, T = (constant + gain * m_in * total - m_out) / s_out.

    `total` is the sum of the integers of a row. With normalisation, deviation and mean of y over a batch are prescribed
    instead.
    """

    @staticmethod
    def forward(ctx, x, weight, change, gain, constant, b_in, m_in, b_out, m_out, settings: AffineSettings):
        """
        Args:
            x: float32[samples, ...], in real units or in steps.
            weight, change: Parameters of `settings.rows`; without these, the FP32 weights of the layer, and None.
            gain: float64[rows], or None for the gain of `settings.rows`.
            constant: float32[rows].
            b_in, m_in, b_out, m_out: The parameters after `settings.into` and `settings.out`, for their gradients.
        """
        into, out, norm, geometry = settings.into, settings.out, settings.norm, settings.geometry
        integers = weight
        if settings.rows:
            integers, own, ctx.rows = settings.rows.quantized()
            integers, gain = geometry.shaped(integers), own if gain is None else gain
        y = x if settings.in_steps or not into.ends else x * (1 / into.step)
        if into.offset and not settings.in_steps:
            y -= into.offset / into.step
        codes = y.round().clamp_(*into.ends) if into.ends else x
        constant = constant.double()
        if norm:
            unit, offset = norm.spread, torch.addcmul(constant, gain, norm.centre)
        else:
            unit = into.step
            offset = torch.addcmul(constant, gain, total(integers), value=into.offset) if into.offset else constant
        scale = gain * unit
        if out.ends:
            scale, offset = scale / out.step, (offset - out.offset) / out.step
        small = scale.float(), offset.float()
        results = geometry.scaled(codes, integers, *small, settings.border, norm)
        ctx.save_for_backward(y, codes, integers, gain, scale, offset, small[0], *results[1:])
        ctx.settings = settings
        return results[0]

    @staticmethod
    def backward(ctx, gradient):
        y, codes, integers, gain, scale, offset, narrow, *kept = ctx.saved_tensors
        settings, needs = ctx.settings, Wanted(*ctx.needs_input_grad)
        into, out, norm = settings.into, settings.out, settings.norm
        of_codes, of_integers, of_scale, of_offset = settings.geometry.scaled_back(
            gradient, codes, integers, narrow, settings.border, norm, kept,
            (needs.x or needs.b_in or needs.m_in, needs.weight or needs.change))
        of_scale, of_offset = of_scale.double(), of_offset.double()
        of_gain = of_scale * ((norm.spread if norm else into.step) / out.step)
        along = torch.dot(of_scale, scale) if needs.b_in or needs.b_out else None
        of_b_in = of_m_in = of_b_out = of_m_out = of_x = None
        if needs.b_out:
            of_b_out = -(along + torch.dot(of_offset, offset)) * (out.damping / out.saturation)
        if out.ends:
            of_offset = of_offset / out.step
            of_m_out = -of_offset.sum() if needs.m_out else None
        if norm:
            of_gain = torch.addcmul(of_gain, of_offset, norm.centre)
            along = 0.0
        elif into.offset or needs.m_in:
            sums = total(integers).double()
            of_m_in = torch.dot(of_offset * gain, sums)
            if into.offset:
                of_gain = torch.addcmul(of_gain, of_offset, sums, value=into.offset)
                if of_integers is not None:
                    of_integers += _spread(of_offset * gain * into.offset, of_integers)
        of_weight, of_change = of_integers, None
        if settings.rows and of_integers is not None:
            own = torch.zeros_like(of_gain) if needs.gain else of_gain
            of_weight, of_change = settings.rows.back(of_integers.flatten(1), own, ctx.rows)
        if of_codes is not None:
            of_x, of_b_in, below = _back(of_codes, y, codes, along, settings, needs)
            if below is not None:
                of_m_in = below if of_m_in is None else of_m_in + below
        of_gain = of_gain if needs.gain else None
        return of_x, of_weight, of_change, of_gain, of_offset.float(), of_b_in, of_m_in, of_b_out, of_m_out, None


def _back(of_codes, y, codes, along, settings: AffineSettings, needs):
    """Gradients of the input of a quantiser, of its saturation and of its offset, or None for those not wanted.

    For the value Q = step * code + offset, the source has dQ/dx = 1 inside the range, dQ/db = 1 above it and dQ/dm = 1
    outside. A learned step has dQ/ds = code - y inside. `along` is the part of dQ/ds from the scale of the sum.
    """
    into = settings.into
    if not into.ends:
        return of_codes, None, None
    gradient = passed(of_codes, y, *into.ends)
    of_b = of_m = None
    if needs.b_in:
        # The gradient is 0 where codes are clipped; inside, y is the share of the step's reciprocal in real units.
        rounded, real = not into.learned_step, not settings.in_steps
        lost = codes if rounded and real else codes - y if rounded else y if real else None
        of_b = along - (inner(lost, gradient) if lost is not None else 0.0)
        of_b = torch.as_tensor(of_b * (into.damping / into.saturation), dtype=torch.float32)
    if settings.in_steps:
        return gradient, of_b, None
    if needs.m_in:
        of_m = -gradient.sum() / into.step
    return gradient / into.step if needs.x else None, of_b, of_m


def total(integers):
    """[rows], the sum of the integers of each row."""
    return integers.sum(tuple(range(1, integers.dim())))


def _spread(rows, like):
    """[rows] in a shape that adds each number to every element of its row."""
    return rows.to(like.dtype).view(-1, *[1] * (like.dim() - 1))


def affine(x, weight, change, gain, constant, inputs: Activations | SignedCodes | None, after: Activations | None,
           **settings):
    """`AffineFunction` between two quantisers. None stands for real units."""
    ranges = [value for part in (inputs, after) for value in (
        (part.saturation, part.offset) if part else (None, None))]
    settings = AffineSettings(into=Range.of(inputs), out=Range.of(after), **settings)
    return AffineFunction.apply(x, weight, change, gain, constant, *ranges, settings)

