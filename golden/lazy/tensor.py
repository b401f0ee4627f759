"""Training tensors: signed mantissas under a shared exponent, from real numbers or from exact sums.

Source: S2; numerics.md of the specification, lazy update and training tensors.
"""

from dataclasses import dataclass

import numpy as np
from concord.spec.numbers.lazy import E_MAX, E_MIN


@dataclass(frozen=True, slots=True)
class TrainingTensor:
    """A tensor under training: value = mantissas * 2**lsb.

    Attributes:
        mantissas: int64[...], each of `bits` bits.
        exponent:  int64, with one element along each axis whose elements share an exponent: it broadcasts.
        bits:      Mantissa width, sign included.
    """

    mantissas: np.ndarray
    exponent: np.ndarray
    bits: int

    @property
    def lsb(self):
        """Exponent of one unit of the mantissas."""
        return self.exponent - (self.bits - 1)

    @property
    def values(self) -> np.ndarray:
        """float64[...]: exact but below 2**-1022."""
        return np.ldexp(self.mantissas.astype(np.float64), self.lsb)


def round_shift(values, shift):
    """round(values / 2**shift), half away from zero, in int64; a negative shift multiplies, and must not overflow."""
    values, shift = np.broadcast_arrays(np.asarray(values, np.int64), np.asarray(shift, np.int64))
    right = np.clip(shift, 0, 63)
    magnitude = np.abs(values).astype(np.uint64)
    whole = magnitude >> right.astype(np.uint64)
    half = magnitude >> np.maximum(right - 1, 0).astype(np.uint64) & np.uint64(1)
    rounded = (whole + np.where(right > 0, half, np.uint64(0))).astype(np.int64)
    return np.where(values < 0, -rounded, rounded) << np.clip(-shift, 0, 62)


def ceil_log2(magnitudes):
    """int64: smallest k with magnitude <= 2**k, of integers of at least 1; 0 for 0."""
    below = np.maximum(np.asarray(magnitudes, np.int64) - 1, 0)
    high, low = below >> 32, below & 0xFFFFFFFF  # float64 holds either exactly
    bits = np.where(high > 0, 32 + np.frexp(high.astype(np.float64))[1], np.frexp(low.astype(np.float64))[1])
    return bits.astype(np.int64)


def measure(sums, lsb, axes=None):
    """Exponent E = ceil(log2 max |sum|) + lsb within E_MIN..E_MAX; the exponent of zeros is E_MIN.

    Args:
        sums: int64[...], |sum| < 2**63: exact sums in units of 2**lsb.
        lsb:  int, or int64 that broadcasts against the exponents.
        axes: Axes along which elements share an exponent; all of them if None.

    Returns:
        int64, with one element along `axes`.
    """
    sums = np.asarray(sums, np.int64)
    largest = np.abs(sums).max(axes, keepdims=True, initial=0)
    return np.where(largest == 0, E_MIN, np.clip(ceil_log2(largest) + lsb, E_MIN, E_MAX))


def requantize(sums, lsb, bits: int, axes=None, exponent=None) -> TrainingTensor:
    """Bring exact sums to mantissas once: clip(round(sum * 2**(lsb - (E - (bits - 1))))), half away from zero.

    A tensor above the range of exponents saturates, one below it rounds towards zeros. Arguments as for `measure`;
    `exponent` is E where it is known.
    """
    sums = np.asarray(sums, np.int64)
    if exponent is None:
        exponent = measure(sums, lsb, axes)
    shift = exponent - (bits - 1) - lsb
    lowest, highest = -(1 << bits - 1), (1 << bits - 1) - 1
    # What lies beyond the range of mantissas by itself stays beyond it when clipped before a shift to the left.
    beyond = np.int64(1) << np.clip(62 + shift, 0, 62)
    mantissas = np.clip(round_shift(np.clip(sums, -beyond, beyond), np.maximum(shift, -62)), lowest, highest)
    return TrainingTensor(mantissas, exponent, bits)


def to_training_tensor(values, bits: int, axes=None) -> TrainingTensor:
    """Quantise real numbers: a NaN counts as 0, an infinity as the largest finite number.

    Args:
        values: float64[...].
        bits:   Of a mantissa: 8, 16 or 32.
        axes:   Axes along which elements share an exponent; all of them if None.
    """
    values = np.nan_to_num(np.asarray(values, np.float64), nan=0.0)
    fraction, exponent = np.frexp(np.abs(values).max(axes, keepdims=True, initial=0.0))
    exponent = np.clip(exponent.astype(np.int64) - (fraction == 0.5), E_MIN, E_MAX)
    exponent = np.where(fraction == 0, E_MIN, exponent)
    # Exact products with a power of two: a value of less than 2**-1022 after them is far below one half.
    magnitude = np.ldexp(np.abs(values), bits - 1 - exponent)
    whole = np.floor(magnitude)
    rounded = whole + (magnitude - whole >= 0.5)
    lowest, highest = -(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1
    return TrainingTensor(np.clip(np.copysign(rounded, values), lowest, highest).astype(np.int64), exponent, bits)
