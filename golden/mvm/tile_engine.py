"""Tile engines: dot products of native tiles and vectors."""

import numpy as np
from concord.spec.config import Config


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
