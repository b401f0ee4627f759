"""Where the real numbers of a layer become those of the machine: scales, offsets, biases and vectors are rounded once.

A bias in block floating point, or of a recurrent layer, is rounded by itself, to binary16 or to an integer in steps of
the accumulator; one of another layer in integers is part of the offset T, which `lowering.requantization` computes in
float64 before it is rounded.
"""

from collections.abc import Mapping

import numpy as np

SMALLEST = 2.0**-14  #: Smallest normal number of binary16.
MOST_SHIFT = 14  #: Right shift up to which every sum of few bits is a normal number.


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


def integer_biases(name: str, bias: np.ndarray, steps: np.ndarray, bits: int) -> np.ndarray:
    """int64[gates, outputs], biases real[gates, outputs] in steps[gates] of the product that they are added to.

    Raises:
        ValueError: a bias needs more bits than `bits`.
    """
    found = np.rint(bias / steps[:, None]).astype(np.int64)
    if (needed := int(np.abs(found).max()).bit_length() + 1) > bits:
        raise ValueError(f"layer {name!r}: its largest bias needs {needed} bits in steps of the accumulator, and has "
                         f"{bits}: give --bias-bits {needed} or more, or leave it out")
    return found
