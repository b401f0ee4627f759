"""Products of integer weights and integer codes: exact sums, and bounds of sums."""

from dataclasses import dataclass

import numpy as np
from concord.golden.lib import float16
from concord.golden.mvm import quantizer
from concord.spec.numbers.formats import Format

FLOAT32_EXACT = 1 << 24  #: Integers below it are exact in float32.
FLOAT64_EXACT = 1 << 53  #: Integers below it are exact in float64.


def codes(x: np.ndarray, fmt: Format, *, unsigned: bool = False, scale=None, offset=None) -> np.ndarray:
    """Integer codes int64[...] of x * scale + offset, as they enter the product.

    Args:
        x:        uint16[...], binary16 patterns.
        fmt:      Format of the codes.
        unsigned: Whether codes are clipped to 0..levels and then lowered by `fmt.zero`.
        scale:    Binary16 patterns; None if x is already in steps of the code.
        offset:   Binary16 patterns; None for no offset.
    """
    if scale is not None:
        x = float16.mul(x, scale)
    if offset is not None:
        x = float16.add(x, offset)
    return quantizer.quantize_integer(x, fmt, unsigned=unsigned)


def largest_sum(weights: np.ndarray, start: np.ndarray, largest_code: int) -> int:
    """Bound of all sums for any input: sum|w| * max|code| + |start| of the row in which it is largest.

    Args:
        weights:      Integers[..., rows, columns].
        start:        Integers[..., rows], added to the sums.
        largest_code: Largest magnitude of a code.
    """
    sums = np.abs(np.asarray(weights, np.int64)).sum(axis=-1).astype(object)
    return int((sums * largest_code + np.abs(np.asarray(start).astype(object))).max())


def exact_type(largest: int) -> type:
    """The fastest numpy type that is exact for integers up to `largest`; object (Python integers) if none is."""
    return np.float32 if largest < FLOAT32_EXACT else np.float64 if largest < FLOAT64_EXACT else object


def exact_product(weights: np.ndarray, columns: np.ndarray, largest: int) -> np.ndarray:
    """Compute columns @ weights.T exactly: int64[..., samples, rows], or Python integers if float64 is not exact.

    Args:
        weights: Integers[..., rows, columns].
        columns: Integers[..., samples, columns].
        largest: Upper bound of every sum of magnitudes.
    """
    dtype = exact_type(largest)
    sums = columns.astype(dtype) @ np.swapaxes(weights.astype(dtype), -1, -2)
    return sums if dtype is object else sums.astype(np.int64)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class IntegerProduct:
    """One product of a layer in integer mode: binary16((start + weights @ codes) * 2**-p).

    Attributes:
        name:         Name of the layer, followed by the name of the matrix if the layer has two.
        weights:      int16[groups, rows, columns]; each group has its own codes.
        start:        int64[groups, rows], added to the sums.
        p:            Number of bits by which the sum is shifted right.
        input_format: Format of the codes.
    """

    name: str
    weights: np.ndarray
    start: np.ndarray
    p: int
    input_format: Format

    @property
    def largest(self) -> int:
        """Bound of the magnitude of every sum, for any input; unsigned codes count after they are lowered."""
        return largest_sum(self.weights, self.start, -self.input_format.lowest)

    @property
    def bits(self) -> int:
        """Number of accumulator bits, sign included, that hold every sum for any input."""
        return self.largest.bit_length() + 1

    def totals(self, columns: np.ndarray) -> np.ndarray:
        """Exact totals start + weights @ codes: int64[groups, samples, rows] of codes[groups, samples, columns]."""
        return exact_product(self.weights, columns, self.largest) + self.start[:, None]

    def rounded(self, totals: np.ndarray) -> np.ndarray:
        """Totals, rounded to binary16: uint16[samples, groups * rows]."""
        groups, samples, rows = totals.shape
        side_by_side = np.moveaxis(totals, 0, 1).reshape(samples, groups * rows)
        return float16.from_integer(side_by_side, self.p)
