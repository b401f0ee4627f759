"""Places of the elements of a tensor in native vectors, where blocks of one exponent begin, and products of blocks.

A tensor is an image, whose pixels each begin a native vector, or a vector. Its places are int[channels], those of the
channels of a pixel, or int[elements], those of a vector: 0 is the first element of the first native vector. A layer
whose channels or elements simply follow each other has the places 0, 1, 2 and so on.
"""

from collections.abc import Sequence

import numpy as np
from concord.golden.lib import float16
from concord.golden.mvm import quantizer
from concord.spec.numbers.formats import Format


def adjacent(count: int) -> np.ndarray:
    """Places of elements that follow each other."""
    return np.arange(count, dtype=np.int32)


def blocks(places: np.ndarray, block: int) -> int:
    """Number of native vectors of `block` elements that hold these places."""
    return int(places.max()) // block + 1


def joined(parts: Sequence[np.ndarray], block: int) -> np.ndarray:
    """Places of a concatenation, of which each part begins a native vector."""
    starts = np.cumsum([0, *(blocks(part, block) * block for part in parts)], dtype=np.int32)
    return np.concatenate([part + start for part, start in zip(parts, starts, strict=False)])


def flattened(channels: np.ndarray, pixels: int, block: int) -> np.ndarray:
    """Places of a flattened image, whose elements are ordered by channel, and which is stored pixel after pixel."""
    apart = blocks(channels, block) * block
    return (channels[:, None] + adjacent(pixels) * np.int32(apart)).ravel()


def cut_by_heads(channels: int, heads: int, block: int) -> np.ndarray:
    """Places of channels that follow each other, where a block holds the channels of one head alone.

    Each part of a head that lies in one native vector begins a native vector of its own here.
    """
    channel = adjacent(channels)
    begins = (channel % block == 0) | (channel % (channels // heads) == 0)
    part = np.cumsum(begins, dtype=np.int32) - 1
    return part * np.int32(block) + channel - channel[begins][part]


def spread(x: np.ndarray, places: np.ndarray | None) -> np.ndarray:
    """Elements [..., elements] at their places, with zeros between them; None for elements that follow each other."""
    if places is None:
        return x
    whole = np.zeros((*x.shape[:-1], int(places.max()) + 1), x.dtype)
    whole[..., places] = x
    return whole


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
    return _rounded(sums, weights, fraction_bits(weights_format, input_format))


def computed_product(rows: np.ndarray, x: np.ndarray, weights_format: Format, input_format: Format, block: int
                     ) -> np.ndarray:
    """Products of two computed tensors, of which one becomes tiles; each sum is exact and rounded once.

    Args:
        rows:           uint16[..., rows, columns], binary16 numbers that become blocks of tiles, row by row.
        x:              uint16[..., samples, columns], which become blocks of vectors.
        weights_format: Format of the tiles.
        input_format:   Format of the vectors.
        block:          Number of elements of a block.

    Returns:
        uint16[..., samples, rows].
    """
    (tiles, above), (vectors, beside) = (
        quantizer.quantize_block(quantizer.split(values, block), fmt)
        for values, fmt in ((rows, weights_format), (x, input_format)))
    tiles = np.moveaxis(tiles.astype(np.float64), -3, -1)  # [..., blocks, elements, rows]
    sums = np.swapaxes(vectors.astype(np.float64), -3, -2) @ tiles  # [..., blocks, samples, rows]
    weights = above[..., None, :, :] + beside[..., :, None, :]
    return _rounded(np.moveaxis(sums, -3, -1).astype(np.int64), weights, fraction_bits(weights_format, input_format))


def _rounded(sums: np.ndarray, weights: np.ndarray, fraction: int) -> np.ndarray:
    """The sums over blocks int64[..., blocks] of exponents int64[..., blocks], each rounded once to binary16.

    Args:
        fraction: Number of fraction bits of a sum whose exponent is 0.
    """
    lowest = int(weights.min())
    shifts = weights - lowest
    needed = int(np.abs(sums).max()).bit_length() + int(shifts.max()) + sums.shape[-1].bit_length()
    if needed > 62:
        sums, shifts = sums.astype(object), shifts.astype(object)
    return float16.from_integer((sums << shifts).sum(axis=-1), fraction - lowest)


def quantized(x: np.ndarray, fmt: Format, block: int) -> np.ndarray:
    """The numbers uint16[samples, elements] that the blocks of numbers stand for, each rounded once to binary16."""
    mantissas, exponents = quantizer.quantize_block(quantizer.split(x, block), fmt)
    return float16.from_integer(mantissas, fmt.bits - 1 - exponents[..., None]).reshape(len(x), -1)[:, : x.shape[1]]


def real_blocks(x: np.ndarray, fmt: Format, block: int, at: np.ndarray | None = None) -> np.ndarray:
    """The real numbers float64[..., elements] that blocks of x along the last axis stand for.

    Args:
        x:     Real[..., elements].
        fmt:   Format of a mantissa.
        block: Number of elements that share an exponent.
        at:    int32[elements], their places in native vectors; None for elements that follow each other.
    """
    mantissas, exponents = quantizer.quantize_reals(
        quantizer.split(spread(np.asarray(x, np.float64), at), block), fmt)
    real = (mantissas * np.ldexp(1.0, exponents - (fmt.bits - 1))[..., None]).reshape(*x.shape[:-1], -1)
    return real[..., :x.shape[-1]] if at is None else real[..., at]


def fraction_bits(weights_format: Format, input_format: Format) -> int:
    """Number of fraction bits of a product of two mantissas whose exponents are 0."""
    return (weights_format.bits - 1) + (input_format.bits - 1)


def aligned(mantissas: np.ndarray, exponents: np.ndarray) -> tuple[np.ndarray, int]:
    """Mantissas, shifted left to the smallest exponent of the mantissas that are not 0; and that exponent."""
    mantissas, exponents = mantissas.astype(np.int64), exponents.astype(np.int64)
    lowest = int(exponents.min(initial=_LARGEST_EXPONENT, where=mantissas != 0))
    return mantissas << np.maximum(exponents - lowest, 0), lowest
