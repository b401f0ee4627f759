"""Tile engines: dot products of native tiles and vectors."""

import numpy as np
from concord.spec.machine.config import Config


def dot_products(weights, operand):
    """Compute dot[..., r, c, i] = sum over j of weights[r, c, i, j] * operand[..., c, j] exactly.

    N is at most 2**16 and a product of mantissas at most 2**30, so that float64 holds every sum, and BLAS may add in
    any order.

    Args:
        weights: Mantissas [row_tiles, columns, N, N]; float64 needs no copy.
        operand: Mantissas [..., columns, N].

    Returns:
        int64[..., row_tiles, columns, N].
    """
    operand = np.asarray(operand, np.float64)
    batch, (columns, n) = operand.shape[:-2], operand.shape[-2:]
    right = operand.reshape(-1, columns, n).transpose(1, 2, 0)
    dots = np.asarray(weights, np.float64) @ right
    return np.moveaxis(dots, -1, 0).reshape(*batch, *dots.shape[:-1]).astype(np.int64)


def exact_sums(config: Config, weights, weight_exponents, operand, operand_exponents, *, integer: bool):
    """Sums over all columns of aligned dot products by one matrix product, where a float has room for every sum.

    The exponents, less the smallest one, are moved into the mantissas of both sides.

    Args:
        config:            The machine.
        weights:           Mantissas [row_tiles, columns, N, N].
        weight_exponents:  int64[row_tiles, columns, N], stored exponents of rows.
        operand:           Mantissas [..., columns, N].
        operand_exponents: int64[..., columns], stored exponents.
        integer:           Whether the product is in integer mode, which ignores exponents.

    Returns:
        int64[..., row_tiles * N], or None where a sum might not fit.
    """
    left, right, shift = weights, operand, 0
    if not integer:
        left, lowest = _scaled(weights, weight_exponents)
        right, low = _scaled(operand, operand_exponents)
        shift = config.alignment + lowest + low
    columns, n = operand.shape[-2:]
    bound = _largest(left) * _largest(right) * columns * n
    if bound >= 1 << 53 or bound << shift >= 1 << 63:
        return None
    real = np.float32 if bound < 1 << 24 else np.float64
    left = left.transpose(0, 2, 1, 3).reshape(-1, columns * n).astype(real)
    sums = right.reshape(-1, columns * n).astype(real) @ left.T
    return (sums.astype(np.int64) << shift).reshape(*operand.shape[:-2], -1)


def _scaled(mantissas, exponents):
    """float64 mantissas * 2**(exponent - lowest), and the lowest exponent."""
    lowest = int(exponents.min())
    return mantissas * np.ldexp(1.0, exponents - lowest)[..., None], lowest


def _largest(values):
    return max(int(values.max()), -int(values.min()))  # the lowest number of an integer type has no negative in it


def alignment(config: Config, weight_exponents, operand_exponents, *, integer: bool):
    """Left shift that brings the dot products of rows to the accumulator's grid.

    Args:
        config:            The machine.
        weight_exponents:  int64[..., N], stored exponents of rows.
        operand_exponents: int64[...], stored exponents of the operands.
        integer:           Whether the product is in integer mode, which needs no shift.

    Returns:
        int64[..., N].
    """
    shift = config.alignment + weight_exponents + np.asarray(operand_exponents)[..., None]
    return shift * (not integer)


def lane_sums(weights, operand, lanes: int):
    """Dot products of single lane groups, which one tile engine adds in one cycle.

    Args:
        weights: Mantissas [row_tiles, columns, N, N].
        operand: Mantissas [columns, N].
        lanes:   Number of products per row and cycle.

    Returns:
        int64[row_tiles, columns, N, N / lanes].
    """
    products = np.asarray(weights, np.int64) * np.asarray(operand, np.int64)[:, None]
    return products.reshape(*products.shape[:-1], -1, lanes).sum(-1)
