"""Quantisation of numbers to blocks of mantissas under one exponent, with the results of `golden.mvm.quantizer`.

Source: numerics.md of the specification, block floating point.
"""

from collections.abc import Sequence

import numpy as np
import torch
from concord.spec.numbers.formats import Format, Rule
from concord.train.lib.straight_through import passed
from torch.autograd import Function
from torch.compiler import is_compiling
from torch.nn import functional

SIGNIFICAND = 23  #: Number of bits of a float32 below its exponent field.
FIELD = 0xFF << SIGNIFICAND
FIELD_OF_ONE = 127
FLOAT64_EXACT = 1 << 53  #: Integers below this are exact in float64.
WIDEST = 11  #: Most bits of a mantissa for which the largest binary16 and an infinity give the same.


def quantize_block(x: torch.Tensor, fmt: Format, block: int, axis: int = 1) -> torch.Tensor:
    """mantissa * 2**(E - (bits - 1)) of every element: float32 of x's shape, itself exact.

    mantissa = clip(round(x * 2**((bits - 1) - E)), lowest, highest), half to even. Exponents are read from the bits of
    float32, and powers of two written as such, so that nothing else rounds. Of a format with a precision, `round` keeps
    as many significant bits, as `golden.mvm.elements.nearest` does.

    Args:
        x:     float32[...]. A NaN counts as 0.
        fmt:   Format of a mantissa, of at most 11 bits, or with a precision.
        block: Number of neighbours along the axis that share an exponent. The last block may have fewer.
        axis:  Axis along which blocks lie, 0 or more.
    """
    return _whole(_quantized(_cut(x, block, axis), fmt, axis + 1)[0], x, axis)


def check(fmt: Format):
    """Refuse a format of mantissas that this file cannot round to.

    Raises:
        ValueError: mantissas are too wide.
    """
    if fmt.bits > WIDEST and not fmt.precision:
        raise ValueError(f"mantissas of {fmt.bits} bits: training in PyTorch takes at most {WIDEST}")


def _cut(x: torch.Tensor, block: int, axis: int) -> torch.Tensor:
    """The blocks of a tensor along an axis of their own; zeros fill the last one."""
    spare = -x.shape[axis] % block
    padded = functional.pad(x, (0, 0) * (x.dim() - 1 - axis) + (0, spare)) if spare else x
    return padded.unflatten(axis, (-1, block))


def _whole(blocks: torch.Tensor, like: torch.Tensor, axis: int) -> torch.Tensor:
    """The tensor whose blocks `_cut` has made."""
    y, size = blocks.flatten(axis, axis + 1), like.shape[axis]
    return y if y.shape[axis] == size else y.narrow(axis, 0, size)


def _quantized(blocks: torch.Tensor, fmt: Format, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantised blocks along an axis, and the factor 2**((bits - 1) - E) of each."""
    check(fmt)
    if is_compiling():  # one loop for all, so that this costs little
        return _rounded(_numbers(blocks), fmt, axis)
    y, scale = _rounded(blocks, fmt, axis)
    # Clipped numbers have a finite sum.
    return _rounded(_numbers(blocks), fmt, axis) if y.sum().isnan() else (y, scale)


def _numbers(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x == x, x, 0.0)


def _rounded(blocks: torch.Tensor, fmt: Format, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The results of `_quantized`, but a NaN stays a NaN."""
    below = FIELD_OF_ONE - 1  # 2**(E - 1) <= largest < 2**E
    fields = _fields(blocks, axis, fmt).clamp(fmt.e_min + below << SIGNIFICAND, fmt.e_max + below << SIGNIFICAND)
    step = fields - (fmt.bits - 2 << SIGNIFICAND)
    scale = ((2 * FIELD_OF_ONE << SIGNIFICAND) - step).view(torch.float32)
    y = blocks * scale
    y = _significant(y, fmt.precision) if fmt.precision else y.round_()
    return y.clamp_(fmt.lowest, fmt.highest).mul_(step.view(torch.float32)), scale


def _significant(y: torch.Tensor, precision: int) -> torch.Tensor:
    """Numbers rounded to multiples of 1 that have so many significant bits, ties to even."""
    lowest, highest = (field << SIGNIFICAND for field in (FIELD_OF_ONE, 2 * FIELD_OF_ONE - 1))
    step = ((y.view(torch.int32) & FIELD) - (precision - 1 << SIGNIFICAND)).clamp(lowest, highest)
    inverse = ((2 * FIELD_OF_ONE << SIGNIFICAND) - step).view(torch.float32)
    return (y * inverse).round_() * step.view(torch.float32)


def _fields(blocks: torch.Tensor, axis: int, fmt: Format) -> torch.Tensor:
    """int32 exponent fields, in their bits of a float32, of the largest magnitudes of blocks along an axis.

    Of a format with a precision, they are those of the magnitudes after they have been rounded.
    """
    size, neighbours = blocks.shape[axis], axis == blocks.dim() - 1
    if neighbours and is_compiling() and size < 32 and fmt.rule is Rule.FREXP and not fmt.precision:
        return _fields_by_sum(blocks)
    if neighbours and not is_compiling():
        # The largest distance from zero is the same as a maximum, and faster among few neighbours in memory.
        largest = torch.cdist(blocks.reshape(-1, size), blocks.new_zeros(1, size), p=torch.inf)
        largest = largest.view(*blocks.shape[:-1], 1)
    else:
        largest = blocks.abs().amax(axis, keepdim=True)
    bits = largest.view(torch.int32)
    if fmt.precision:  # carries into the exponent where the magnitude rounds up to a power of two
        bits = bits + (1 << SIGNIFICAND - fmt.precision)
    # A power of two belongs to the exponent below it under the rule ceil.
    return (bits if fmt.rule is Rule.FREXP else bits.clamp(min=1) - 1) & FIELD


def _fields_by_sum(blocks: torch.Tensor) -> torch.Tensor:
    """The results of `_fields` for magnitudes from 2**-25 to 2**25.

    A sum of fewer than 32 powers 32**k, whose largest is 32**e, is at least 32**e and less than 32**(e + 1).

    Compiled, a sum of neighbours is faster than their maximum.
    """
    powers = (blocks.view(torch.int32) & FIELD).view(torch.float32)
    squares = powers * powers
    total = (squares * squares * powers).sum(-1, keepdim=True).view(torch.int32) >> SIGNIFICAND
    return (total - FIELD_OF_ONE).div(5, rounding_mode="floor") + FIELD_OF_ONE << SIGNIFICAND


def _ends(fmt: Format) -> tuple[float, float]:
    """The numbers beyond which a mantissa clips; what only rounds to an end of the range does not."""
    beyond = 2.0 ** (fmt.bits - 2 - fmt.precision) if fmt.precision else 0
    return fmt.lowest - beyond, fmt.highest + beyond


def placed_blocks(x: torch.Tensor, fmt: Format, block: int, at: np.ndarray | None, stops: bool = True) -> torch.Tensor:
    """A tensor, quantised in the native vectors along axis 1 in which its elements lie; see `BlocksFunction`.

    Args:
        at: Places of the elements, see `net.arithmetic.native_vectors`; None for elements that follow each other.
    """
    if at is None:
        return BlocksFunction.apply(x, fmt, block, 1, stops)
    places = torch.from_numpy(at).long()
    whole = x.new_zeros(len(x), int(places.max()) + 1, *x.shape[2:]).index_copy(1, places, x)
    return BlocksFunction.apply(whole, fmt, block, 1, stops).index_select(1, places)


@torch.no_grad()
def check_sums(named: str, rows: Sequence[torch.Tensor], largest: float, formats: tuple[Format, Format]):
    """Refuse sums of products that float64 may not hold in the smallest unit.

    Args:
        named:   What has the sums.
        rows:    Quantised weights or tiles [..., columns] each, whose products with inputs are added.
        largest: Largest magnitude of an input.
        formats: Formats of both.

    Raises:
        ValueError: sums may not be exact.
    """
    unit = sum(fmt.e_min - (fmt.bits - 1) for fmt in formats)
    total = sum(one.double().abs().sum(-1) for one in rows).max().item() * largest
    if total * 2.0**-unit >= FLOAT64_EXACT:
        raise ValueError(f"{named}: sums up to {total:.3g} in units of 2**{unit} are not exact in float64; use fewer "
                         "bits or a smaller range of exponents")


class BlocksFunction(Function):
    """`quantize_block` with a gradient, which passes. If `stops`, it is 0 for numbers that clip."""

    @staticmethod
    def forward(ctx, x, fmt, block, axis, stops=True):
        y, scale = _quantized(_cut(x, block, axis), fmt, axis + 1)
        ctx.save_for_backward(x, scale)
        ctx.ends, ctx.cut, ctx.stops = _ends(fmt), (block, axis), stops
        return _whole(y, x, axis)

    @staticmethod
    def backward(ctx, gradient):
        if not ctx.stops:
            return gradient, None, None, None, None
        x, scale = ctx.saved_tensors
        mantissas = _whole(_cut(x, *ctx.cut) * scale, x, ctx.cut[1])
        return passed(gradient, mantissas, *ctx.ends), None, None, None, None
