"""Numbers to blocks of mantissas under one exponent, as `golden.quantizer` has them, in float32.

Source: numerics.md of the specification, block floating point.
"""

import torch
from torch.autograd import Function
from torch.nn import functional

from spec.formats import Format, Rule

SIGNIFICAND = 23  #: Bits of a float32 below its exponent field.
FIELD = 0xFF << SIGNIFICAND
FIELD_OF_ONE = 127
LARGEST = 65504.0  #: Finite binary16, what an infinity counts as.


def quantize_block(x: torch.Tensor, fmt: Format, block: int, axis: int = 1) -> torch.Tensor:
    """mantissa * 2**(E - (bits - 1)) of every element: float32 of x's shape, itself exact.

    mantissa = clip(round(x * 2**((bits - 1) - E)), lowest, highest), half to even. Exponents and powers of two are
    made of the float32's own bits.

    Args:
        x:     float32[...]. A NaN counts as 0, an infinity as the largest finite binary16.
        fmt:   Of a mantissa.
        block: Neighbours along the axis that share an exponent; the last ones may be fewer.
        axis:  Counted from the first.
    """
    size = x.shape[axis]
    if size % block:
        x = functional.pad(x, (0, 0) * (x.dim() - 1 - axis) + (0, -size % block))
    blocks, inner = x.unflatten(axis, (-1, block)), axis + 1
    compiling = torch.compiler.is_compiling()
    if compiling:  # one loop for all, so that this costs nothing
        blocks = torch.nan_to_num(blocks, 0.0, LARGEST, -LARGEST)
    fields = _fields(blocks, inner, fmt.rule)
    if not compiling and fields.max() == FIELD:
        blocks = torch.nan_to_num(blocks, 0.0, LARGEST, -LARGEST)
        fields = _fields(blocks, inner, fmt.rule)
    # The field of a power of two says E - 1 + FIELD_OF_ONE of what lies above it.
    before = FIELD_OF_ONE - 1
    fields = fields.clamp_(fmt.e_min + before << SIGNIFICAND, fmt.e_max + before << SIGNIFICAND)
    step = fields - (fmt.bits - 2 << SIGNIFICAND)
    y = blocks * ((2 * FIELD_OF_ONE << SIGNIFICAND) - step).view(torch.float32)
    y = y.round_().clamp_(fmt.lowest, fmt.highest).mul_(step.view(torch.float32)).flatten(axis, inner)
    return y.narrow(axis, 0, size) if size % block else y


def _fields(blocks: torch.Tensor, axis: int, rule: Rule) -> torch.Tensor:
    """int32: exponent fields, in their place, of what decides the exponents of blocks."""
    magnitude = blocks.abs()
    if axis == blocks.dim() - 1 and not torch.compiler.is_compiling():
        # Neighbours in memory: pooling is faster than a reduction over so few.
        largest = functional.max_pool1d(magnitude.reshape(1, 1, -1), blocks.shape[-1]).view(*blocks.shape[:-1], 1)
    else:
        largest = magnitude.amax(axis, keepdim=True)
    bits = largest.view(torch.int32)
    if rule is Rule.CEIL:  # a power of two belongs to what is below it
        bits = torch.where(bits == FIELD, bits, bits.clamp(min=1) - 1)
    return bits & FIELD


class Blocks(Function):
    """`quantize_block`; the gradient passes, except where the largest exponent keeps a number from its size.

    A number that is clipped only because it is the largest of its block moves the exponent when it grows, so its
    gradient passes too.
    """

    @staticmethod
    def forward(ctx, x, fmt, block, axis):
        ctx.save_for_backward(x)
        ctx.limit = 2.0**fmt.e_max
        return quantize_block(x, fmt, block, axis)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return torch.ops.aten.hardtanh_backward(gradient, x, -ctx.limit, ctx.limit), None, None, None
