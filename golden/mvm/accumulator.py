"""Accumulators: sums of aligned dot products, modulo the width of an accumulator."""

import numpy as np
from concord.golden.mvm.overflow import Events, misfits, partial_events, product_events, wrap
from concord.golden.mvm.tile_engine import alignment, dot_products, exact_sums, lane_sums
from concord.spec.machine.config import Config

_LIMB = 40  # bits of the lower limb, for sums that do not fit 64 bits


def accumulate(config: Config, weights, weight_exponents, operand, operand_exponents, start_values=None, *, rows: int,
               integer: bool):
    """Add up one product, and the start values after the last beat: wrap(start_values + sum of dot * 2**alignment).

    Args:
        config:            The machine.
        weights:           Mantissas [row_tiles, columns, N, N]; float64 is fastest.
        weight_exponents:  int64[row_tiles, columns, N], stored exponents E - e_min.
        operand:           Mantissas int64[..., columns, N]; leading axes are iterations of the product.
        operand_exponents: int64[..., columns], stored exponents.
        start_values:      int64[rows] of at most 32 bits in integer mode, or None.
        rows:              Number of rows of the result.
        integer:           Whether the product is in integer mode, which ignores exponents.

    Returns:
        Totals [..., rows], wrapped to sum_bits, int64, or Python integers where they do not fit; and the events of
        partial sums and products, which are zero if the configuration does not count them.

    Source: numerics.md of the specification, matrix-vector product and overflow events.
    """
    sums = exact_sums(config, weights, weight_exponents, operand, operand_exponents, integer=integer)
    if sums is not None:
        # Start values are only added to unshifted sums, which are far below 2**63.
        sums = sums[..., :rows]
        totals = wrap(sums if start_values is None else sums + start_values, config.sum_bits)
    else:
        totals = _aligned(config, weights, weight_exponents, operand, operand_exponents, start_values, rows, integer)
    events = Events()
    if config.count_overflows:
        for index in np.ndindex(operand.shape[:-2]):
            events += _events(config, weights, weight_exponents, operand[index], operand_exponents[index],
                              start_values, rows, integer)
    return totals, events


def _aligned(config, weights, weight_exponents, operand, operand_exponents, start_values, rows, integer):
    """The totals, with the dot product of each tile aligned by itself."""
    dots = dot_products(weights, operand)
    shift = alignment(config, weight_exponents, operand_exponents[..., None, :], integer=integer)
    bound = int(np.abs(dots).max()) << int(np.max(shift))
    # Bits that 64-bit sums lose do not matter for totals of at most 64 bits.
    if config.sum_bits <= 64 or bound * dots.shape[-2] < 1 << 63:
        sums = (dots << shift).sum(-2).reshape(*dots.shape[:-3], -1)[..., :rows]
        return wrap(sums if start_values is None else sums + start_values, config.sum_bits)
    return _two_limbs(config, dots, shift, rows)


def _two_limbs(config, dots, shift, rows):
    """The totals, each computed by two sums of 64 bits as high * 2**_LIMB + low."""
    mask = (1 << _LIMB) - 1
    small, rest = np.minimum(shift, _LIMB), np.maximum(shift - _LIMB, 0)
    # Bits that a left shift moves beyond 64 bits do not matter for totals of at most 80 bits.
    low = (dots << small & mask).sum(-2)
    high = (dots >> _LIMB - small << rest).sum(-2)
    high, low = (limb.reshape(*dots.shape[:-3], -1)[..., :rows] for limb in (high, low))
    totals = wrap((high.astype(object) << _LIMB) + low.astype(object), config.sum_bits)
    count, _ = misfits(totals, 64)
    return totals if count else totals.astype(np.int64)


def _events(config, weights, weight_exponents, operand, operand_exponents, start_values, rows, integer):
    """Overflow events of one iteration."""
    beats = lane_sums(weights, operand, config.lanes)
    shift = alignment(config, weight_exponents, operand_exponents, integer=integer)
    largest = int(np.abs(beats).max()) << int(shift.max())
    first = 0 if start_values is None else int(np.abs(start_values).max())
    events = product_events(config, weights, operand, rows)
    limit = 1 << config.sum_bits - 1
    if largest * beats.shape[1] * beats.shape[3] + first < limit:
        return events
    # One addition adds the columns of a step, one from each engine.
    spare = -beats.shape[1] % config.tile_engines
    beats = np.pad(beats, ((0, 0), (0, spare), (0, 0), (0, 0)))
    shift = np.pad(shift, ((0, 0), (0, spare), (0, 0)))[..., None]
    if limit + largest * config.tile_engines > 1 << 63:  # a sum before it wraps may not fit 64 bits
        beats, shift = beats.astype(object), shift.astype(object)
    beats = beats << shift
    tiles, columns, n, groups = beats.shape
    beats = beats.reshape(tiles, -1, config.tile_engines, n, groups).sum(2)
    beats = beats.transpose(0, 2, 1, 3).reshape(tiles * n, -1)[:rows]
    return events + partial_events(config, beats, start_values)
