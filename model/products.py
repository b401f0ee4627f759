"""Matrix-vector products of layers in golden arithmetic."""

import numpy as np
from concord.golden.lib import float16
from concord.golden.mvm import quantizer
from concord.spec.formats import Format


def affine(x: np.ndarray, scale: np.ndarray | None, offset: np.ndarray | None) -> np.ndarray:
    """x * scale + offset in binary16, without what is None."""
    if scale is not None:
        x = float16.mul(x, scale)
    return x if offset is None else float16.add(x, offset)


def tall(stacked: np.ndarray) -> np.ndarray:
    """Stack the gates' rows into one matrix: [gates, rows, columns] becomes [gates * rows, columns]."""
    return stacked.reshape(-1, stacked.shape[-1])


def integer_product(weights: np.ndarray, codes: np.ndarray, p: int) -> np.ndarray:
    """binary16((weights @ codes) * 2**-p), uint16[samples, rows]."""
    return float16.from_integer(integer_sums(weights, codes), p)


def integer_sums(weights: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """weights @ codes, int64[samples, rows]."""
    return (codes.astype(np.float64) @ weights.T.astype(np.float64)).astype(np.int64)  # exact: far below 2**53


def block_product(parts, weights_format: Format, input_format: Format, block: int) -> np.ndarray:
    """The exact sum over blocks of (mantissas, exponents, x), rounded once to binary16, uint16[samples, rows].

    Sums of blocks move left to the smallest exponent of all, so that nothing is dropped; Python integers take over
    where 62 bits do not hold them.
    """
    sums, weights = [], []
    for mantissas, exponents, x in parts:
        x_mantissas, x_exponents = quantizer.quantize_block(quantizer.split(x, block), input_format)
        operands = (np.asarray(a, np.float64) for a in (quantizer.split(mantissas, block), x_mantissas))
        sums.append(np.einsum("rcn,scn->src", *operands, optimize=True).astype(np.int64))
        weights.append(exponents.astype(np.int64) + x_exponents[:, None])
    sums, weights = np.concatenate(sums, axis=2), np.concatenate(weights, axis=2)
    lowest = int(weights.min())
    shifts = weights - lowest
    needed = int(np.abs(sums).max()).bit_length() + int(shifts.max()) + sums.shape[2].bit_length()
    if needed > 62:
        sums, shifts = sums.astype(object), shifts.astype(object)
    total = (sums << shifts).sum(axis=2)
    return float16.from_integer(total, (weights_format.bits - 1) + (input_format.bits - 1) - lowest)
