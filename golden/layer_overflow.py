"""Overflow events of a whole layer for a batch, at the widths of any machine.

Source: S3; numerics.md of the specification, overflow events.
"""

from dataclasses import dataclass, fields
from functools import reduce

import numpy as np

from golden.overflow import Events, misfits, output_events, partial_events, wrap

CHUNK = 1 << 18  #: Products at a time: they stay in a core's cache.


@dataclass(frozen=True, kw_only=True, slots=True)
class Widths:
    """What sums are stored in.

    Attributes:
        sum_bits:     Of the accumulator, sign included, 1 to 64.
        product_bits: Of a product; likewise.
        output_bits:  Of a total; likewise.
        lanes:        Products that are added in one cycle; 1 counts one by one.

    Raises:
        ValueError: a sentence that names the attribute.
    """

    sum_bits: int
    product_bits: int = 32
    output_bits: int = 32
    lanes: int = 1

    def __post_init__(self):
        for width in fields(self):
            value = getattr(self, width.name)
            if width.name != "lanes" and not 1 <= value <= 64:
                raise ValueError(f"{width.name} = {value} is out of range: it lies in 1..64")
        if self.lanes < 1:
            raise ValueError(f"lanes = {self.lanes} must be at least 1")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Count:
    """What a layer's sums did for a batch. A magnitude is that of an exact integer, which has not wrapped: v, or -1 - v
    where v is negative, so that it fits b bits if it is below 2**(b - 1).

    Attributes:
        events:    Of all rows.
        additions: Partial sums that were looked at.
        rows:      int64[rows], partial-sum events of each row.
        partial:   int64[rows], largest magnitude of a partial sum, before `start` is added.
        total:     int64[rows], largest magnitude of a total.
        product:   int64[rows], largest magnitude of a product.
    """

    events: Events
    additions: int
    rows: np.ndarray
    partial: np.ndarray
    total: np.ndarray
    product: np.ndarray

    @property
    def bits(self) -> int:
        """Accumulator bits that the batch needed."""
        return int(np.maximum(self.partial, self.total).max()).bit_length() + 1

    def __add__(self, other: "Count") -> "Count":
        """Of the same rows for the samples of both."""
        return Count(
            events=self.events + other.events,
            additions=self.additions + other.additions,
            rows=self.rows + other.rows,
            partial=np.maximum(self.partial, other.partial),
            total=np.maximum(self.total, other.total),
            product=np.maximum(self.product, other.product),
        )

    def beside(self, other: "Count") -> "Count":
        """Of the rows of both."""
        arrays = {name: np.concatenate([getattr(self, name), getattr(other, name)])
                  for name in ("rows", "partial", "total", "product")}
        return Count(events=self.events + other.events, additions=self.additions + other.additions, **arrays)

    @property
    def number(self) -> int:
        """Events of all kinds."""
        return self.events.partial + self.events.product + self.events.output


def count(weights: np.ndarray, codes: np.ndarray, start: np.ndarray, widths: Widths) -> Count:
    """Count the overflow events of start + weights @ codes.

    Args:
        weights: Integers[rows, columns].
        codes:   Integers[samples, columns], as they travel; of a convolution, a sample for each patch.
        start:   Integers[rows], added last.
        widths:  What the sums are stored in.

    Raises:
        ValueError: a sum needs more than 62 bits.
    """
    weights, codes, start = (np.asarray(values, np.int64) for values in (weights, codes, start))
    largest = proven(weights, start, int(np.abs(codes).max(initial=0)))
    if largest >= 1 << 61:
        raise ValueError(f"a sum of this layer needs {largest.bit_length() + 1} bits; 62 can be counted")
    dtype = np.int32 if largest < 1 << 30 else np.int64
    spare = ((0, 0), (0, -weights.shape[1] % widths.lanes))
    weights, codes = (np.pad(values, spare).astype(dtype) for values in (weights, codes))
    size = max(1, CHUNK // weights.size)
    parts = (codes[first : first + size] for first in range(0, len(codes), size))
    return reduce(Count.__add__, (_chunk(weights, part, start, widths) for part in parts))


def _chunk(weights, codes, start, widths: Widths) -> Count:
    """Of a few samples; columns are a multiple of the lanes."""
    products = weights * codes[:, None]
    beats = products.reshape(*products.shape[:2], -1, widths.lanes).sum(-1, dtype=products.dtype)
    sums = np.cumsum(beats, axis=2, dtype=beats.dtype)
    totals = sums[..., -1] + start
    partial, total, product = _magnitude(sums).max(-1), _magnitude(totals), _magnitude(products).max(-1)
    # A sum that never leaves the accumulator never wraps: only the others are counted one by one.
    over = np.maximum(partial, total) >= 1 << widths.sum_bits - 1
    events, rows = Events(), np.zeros(len(weights), np.int64)
    for row in np.flatnonzero(over.any(0)):
        mine = beats[over[:, row], row].astype(np.int64)
        part = partial_events(widths, mine, np.full(len(mine), start[row]))
        rows[row] = part.partial
        events += part
    if product.max() >= 1 << widths.product_bits - 1:
        number, excess = misfits(products, widths.product_bits)
        events += Events(product=number, excess_product=excess)
    events += output_events(widths, wrap(totals, widths.sum_bits), None, integer=True)
    return Count(
        events=events,
        additions=sums.size + totals.size,
        rows=rows,
        partial=partial.max(0),
        total=total.max(0),
        product=product.max(0),
    )


def _magnitude(values: np.ndarray) -> np.ndarray:
    return np.where(values < 0, ~values, values)


def proven(weights: np.ndarray, start: np.ndarray, largest_code: int) -> int:
    """sum|w| * max|x| + |start|, of the row where it is largest: no sum of that row is larger, whatever the input."""
    sums = np.abs(np.asarray(weights, np.int64)).sum(axis=1)
    return max(int(row) * largest_code + abs(int(first)) for row, first in zip(sums, start, strict=True))
