"""Softmax and normalisations over features in PyTorch: in real numbers, and in the machine's arithmetic."""

import torch
from concord.golden.lib.float16 import to_bits
from concord.net.layers.reductions import VectorNorm
from concord.net.ops.reduction import FeatureNorm, SoftmaxInside
from concord.spec.numbers.activation import Activation
from concord.train.lib.curves import curve
from concord.train.lib.straight_through import binary16


def softmax(op: SoftmaxInside, x: torch.Tensor, *, lowered: bool) -> torch.Tensor:
    """The softmax of vectors float32[samples, elements], or of the channels of images; the machine's with `lowered`."""
    if not lowered:
        return torch.softmax(x, 1)
    powers = exponentials(x.movedim(1, -1), lowered=True)
    return binary16(powers * curve(Activation.RECIPROCAL, True)(total(powers, lowered=True))).movedim(-1, 1)


def exponentials(x: torch.Tensor, *, lowered: bool) -> torch.Tensor:
    """exp(x - largest) along the last axis; the machine's with `lowered`.

    The largest element cancels in what is divided by the sum, so that no gradient goes through it.
    """
    less = x - x.detach().amax(-1, keepdim=True)
    return curve(Activation.EXP, lowered)(binary16(less) if lowered else less)


def norm(op: FeatureNorm, x: torch.Tensor, *, lowered: bool) -> torch.Tensor:
    """Layer or RMS normalisation of vectors float32[samples, elements]; the machine's with `lowered`."""
    if x.dim() == 4:
        return norm(op, x.movedim(1, -1).flatten(1, 2), lowered=lowered).movedim(-1, 1).unflatten(2, x.shape[2:])
    if not lowered:
        d = x - x.mean(-1, keepdim=True) if op.centred else x
        scaled = d * torch.rsqrt(d.square().mean(-1, keepdim=True) + op.epsilon)
        return torch.from_numpy(op.weight) * scaled + torch.from_numpy(op.bias)
    layer = VectorNorm(name="", weight=to_bits(op.weight), bias=to_bits(op.bias), centred=op.centred,
                          epsilon=op.epsilon)
    mean, share, floor, root = (
        torch.from_numpy(to_bits([number]).view("float16")).float() for number in layer.numbers.values())
    weight, bias = (torch.from_numpy(bits.view("float16")).float() for bits in (layer.weight, layer.bias))
    d = binary16(x + binary16(total(x, lowered=True) * mean)) if op.centred else x
    squares = total(binary16(binary16(d * share) * d), lowered=True)
    factor = binary16(curve(Activation.RSQRT, True)(binary16(squares + floor)) * root)
    return binary16(binary16(binary16(d * weight) * factor) + bias)


def total(x: torch.Tensor, *, lowered: bool) -> torch.Tensor:
    """The sum along the last axis; exact, and rounded once, with `lowered`: float64 holds 8,192 binary16 numbers."""
    return binary16(x.double().sum(-1, keepdim=True) + 0.0) if lowered else x.sum(-1, keepdim=True)
