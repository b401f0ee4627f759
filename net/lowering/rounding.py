"""Where the real numbers of a layer become those of the machine: scales, offsets, biases and vectors are rounded once.

A bias in block floating point, or of a recurrent layer, is rounded by itself; one in integers is part of the offset T,
which `lowering.requantization` computes in float64 before it is rounded.
"""

from collections.abc import Mapping

import numpy as np


def binary16(values, what: str = "a value") -> np.ndarray:
    """Round real numbers once to binary16 bit patterns; numbers out of range are refused."""
    values = np.asarray(values, np.float64)
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16)
    if not np.isfinite(halves).all():
        raise ValueError(f"{what}: {values[~np.isfinite(halves)].flat[0]} is outside binary16; rescale the layer")
    return (halves + np.float16(0)).view(np.uint16)  # adding +0 turns -0 into +0


def patterns(name: str, vectors: Mapping[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    """Binary16 patterns of vectors by their names."""
    return {key: binary16(value, f"layer {name!r}, {key}") for key, value in (vectors or {}).items()}
