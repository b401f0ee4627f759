"""Places of the elements of a tensor in native vectors, where blocks of one exponent begin.

A tensor is an image, whose pixels each begin a native vector, or a vector. Its places are int[channels], those of the
channels of a pixel, or int[elements], those of a vector: 0 is the first element of the first native vector. A layer
whose channels or elements simply follow each other has the places 0, 1, 2 and so on.
"""

from collections.abc import Sequence

import numpy as np


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


def spread(x: np.ndarray, places: np.ndarray | None) -> np.ndarray:
    """Elements [..., elements] at their places, with zeros between them; None for elements that follow each other."""
    if places is None:
        return x
    whole = np.zeros((*x.shape[:-1], int(places.max()) + 1), x.dtype)
    whole[..., places] = x
    return whole
