"""Products in block floating point: exact sums of blocks, rounded once to binary16."""

from collections.abc import Sequence

import numpy as np
from concord.golden.lib import float16
from concord.golden.mvm import quantizer
from concord.spec.numbers.formats import Format

#: Largest exponent of any format.
_LARGEST_EXPONENT = 16


def product(
    parts: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], weights_format: Format, input_format: Format, block: int
) -> np.ndarray:
    """The exact sum over all blocks of all parts, rounded once: uint16[samples, rows].

    The sums of blocks are shifted left to the smallest exponent, so that no bit is dropped. Where 62 bits do not hold
    them, they are Python integers.

    Args:
        parts:          For each part mantissas[rows, columns], exponents[rows, blocks] and uint16[samples, columns].
        weights_format: Format of the mantissas.
        input_format:   Format that the inputs are quantised to.
        block:          Number of elements of a block.
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
    return float16.from_integer((sums << shifts).sum(axis=2), places(weights_format, input_format) - lowest)


def places(weights_format: Format, input_format: Format) -> int:
    """Number of fraction bits of a product of two mantissas whose exponents are 0."""
    return (weights_format.bits - 1) + (input_format.bits - 1)


def aligned(mantissas: np.ndarray, exponents: np.ndarray) -> tuple[np.ndarray, int]:
    """Mantissas, shifted left to the smallest exponent of the mantissas that are not 0; and that exponent."""
    mantissas, exponents = mantissas.astype(np.int64), exponents.astype(np.int64)
    lowest = int(exponents.min(initial=_LARGEST_EXPONENT, where=mantissas != 0))
    return mantissas << np.maximum(exponents - lowest, 0), lowest
