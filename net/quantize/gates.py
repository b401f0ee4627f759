"""Integers of an LSTM gate's matrices: scale and zero point from the ends of the range.

    asymmetric  x_min = min(0, min), x_max = max(0, max), S = (2**bits - 1) / (x_max - x_min), z = round(S x_min)
                q = clip(round(S x) - z, 0, 2**bits - 1)
    symmetric   S = (2**(bits - 1) - 1) / max|x|, z = 0
                q = clip(round(S x), -(2**(bits - 1) - 1), 2**(bits - 1) - 1)
    recovered   x' = (q + z) / S

The machine multiplies q + z, a signed integer that needs bits + 1 bits where z is not 0. `round` goes to the nearest
integer, ties to even, everywhere. The zero point that is subtracted is then the one that is added, and a real 0 is
recovered as 0: otherwise the time steps of a sequence would add up an error of one sign.

Source: S1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from concord.net.quantize.recipe import Gates


@dataclass(frozen=True, kw_only=True, slots=True)
class IntegerScale:
    """A scale of integers and its zero point: x' = (q + zero) * step, lowest <= q <= highest.

    Attributes:
        step:    1 / S, the real value of one step.
        lowest:  Smallest q.
        highest: Largest q.
        zero:    z, the zero point, an integer.
    """

    step: float
    lowest: int
    highest: int
    zero: int = 0

    @property
    def ends(self) -> tuple[int, int]:
        """Smallest and largest q + z."""
        return self.lowest + self.zero, self.highest + self.zero


def symmetric(values: np.ndarray, bits: int) -> IntegerScale:
    """The scale of the symmetric range that holds all values; S = 1 where all are 0."""
    _check(values, bits)
    highest = (1 << bits - 1) - 1
    largest = float(np.abs(values).max())
    return IntegerScale(step=largest / highest if largest else 1.0, lowest=-highest, highest=highest)


def asymmetric(values: np.ndarray, bits: int) -> IntegerScale:
    """The scale of the range from the smallest to the largest value, 0 included; S = 1 where all are 0."""
    _check(values, bits)
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    levels = (1 << bits) - 1
    step = (high - low) / levels if high > low else 1.0
    return IntegerScale(step=step, lowest=0, highest=levels, zero=int(np.rint(low / step)))


def quantize(values: np.ndarray, affine: IntegerScale) -> np.ndarray:
    """q, int64. It is clipped, since the two roundings can differ by 2**bits, which is one more than the highest q."""
    whole = np.rint(np.asarray(values, np.float64) / affine.step).astype(np.int64)
    return np.clip(whole - affine.zero, affine.lowest, affine.highest)


def recover(codes: np.ndarray, affine: IntegerScale) -> np.ndarray:
    """The recovered values x', float64."""
    return (np.asarray(codes, np.int64) + affine.zero) * affine.step


def of_gate(matrices: Sequence[np.ndarray], bits: int, gates: Gates) -> list[IntegerScale]:
    """The scale and zero point of each matrix of one gate."""
    fit = asymmetric if gates.asymmetric else symmetric
    if gates.shared:
        return [fit(np.concatenate([np.ravel(matrix) for matrix in matrices]), bits)] * len(matrices)
    return [fit(np.asarray(matrix), bits) for matrix in matrices]


def _check(values: np.ndarray, bits: int):
    if not 2 <= bits <= 32:
        raise ValueError(f"an integer has 2 to 32 bits, not {bits}")
    if not np.isfinite(values).all():
        raise ValueError("a weight or bias is infinite or NaN, so it has no scale: train with a lower learning rate")
