"""Overflow events of a whole layer for a batch, at the widths of any machine.

Source: S3; numerics.md of the specification, overflow events.
"""

from dataclasses import dataclass, fields
from functools import reduce

import numpy as np
from concord.golden.mvm.overflow import Events, misfits, output_events, wrap
from concord.model.arithmetic.integer import largest_sum

CHUNK = 1 << 15  #: Sums at a time: they stay in a core's cache.


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
    weights, codes, start = np.asarray(weights, np.int64), np.asarray(codes), np.asarray(start, np.int64)
    largest = largest_sum(weights, start, max(-int(codes.min(initial=0)), int(codes.max(initial=0))))
    if largest >= 1 << 61:
        raise ValueError(f"a sum of this layer needs {largest.bit_length() + 1} bits; 62 can be counted")
    dtype = np.int32 if largest < 1 << 30 else np.int64
    weights, size = weights.astype(dtype), max(1, CHUNK // len(weights))
    parts = (codes[first : first + size].T.astype(dtype, order="C") for first in range(0, len(codes), size))
    return reduce(Count.__add__, (_chunk(weights, part, start, widths) for part in parts))


def _chunk(weights, codes, start, widths: Widths) -> Count:
    """Of a few samples: codes[columns, samples]."""
    sums, lowest, highest = _sums(weights, codes, widths.lanes)
    totals = sums + start[:, None]
    partial, total = np.maximum(highest, ~lowest), _magnitude(totals)
    # A sum that never leaves the accumulator never wraps: only the others are counted one by one.
    over = np.maximum(partial, total) >= 1 << widths.sum_bits - 1
    events, rows, samples = Events(), np.zeros(len(weights), np.int64), over.any(0)
    if samples.any():
        mine = over.any(1)
        events, rows[mine] = _wraps(weights[mine], codes[:, samples], start[mine], widths)
    # A product is largest where its code is: at one of two ends.
    ends = np.stack([codes.min(1), codes.max(1)], axis=1)
    product = _magnitude(weights[..., None] * ends).max((1, 2))
    if product.max() >= 1 << widths.product_bits - 1:
        number, excess = misfits(weights[..., None] * codes, widths.product_bits)
        events += Events(product=number, excess_product=excess)
    events += output_events(widths, wrap(totals, widths.sum_bits), None, integer=True)
    return Count(
        events=events,
        additions=sums.size * (-(-len(codes) // widths.lanes) + 1),
        rows=rows,
        partial=partial.max(1),
        total=total.max(1),
        product=product,
    )


def _sums(weights, codes, lanes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """weights @ codes, and the lowest and the highest of 0 and the partial sums on the way there."""
    sums = np.zeros((len(weights), codes.shape[1]), weights.dtype)
    lowest, highest, products = np.zeros_like(sums), np.zeros_like(sums), np.empty_like(sums)
    for column, seen in enumerate(codes, 1):
        np.multiply(weights[:, column - 1 : column], seen, out=products)
        sums += products
        if column % lanes == 0 or column == len(codes):
            np.minimum(lowest, sums, out=lowest)
            np.maximum(highest, sums, out=highest)
    return sums, lowest, highest


def _wraps(weights, codes, start, widths: Widths) -> tuple[Events, np.ndarray]:
    """Additions whose exact result does not fit the accumulator, which wraps; their number for each row."""
    half, ring = 1 << widths.sum_bits - 1, (1 << widths.sum_bits) - 1
    # Above the lowest number of the accumulator, what fits is 0 or more, and at most `ring`.
    above = np.full((len(weights), codes.shape[1]), half, weights.dtype)
    lowest, highest, events = above.copy(), above.copy(), np.zeros_like(above)

    def wrap_around():
        np.minimum(lowest, above, out=lowest)
        np.maximum(highest, above, out=highest)
        np.add(events, above >> widths.sum_bits != 0, out=events)
        np.bitwise_and(above, ring, out=above)

    for column, seen in enumerate(codes, 1):
        np.add(above, weights[:, column - 1 : column] * seen, out=above)
        if column % widths.lanes == 0 or column == len(codes):
            wrap_around()
    np.add(above, start[:, None], out=above)
    wrap_around()
    rows = events.sum(1, dtype=np.int64)
    _, excess = misfits(np.array([lowest.min(), highest.max()]).astype(np.int64) - half, widths.sum_bits)
    return Events(partial=int(rows.sum()), excess_partial=excess), rows


def _magnitude(values: np.ndarray) -> np.ndarray:
    return np.where(values < 0, ~values, values)

