"""Overflow events of a whole layer for a batch, at the widths of any machine, and of all layers of a model.

Source: S3; numerics.md of the specification, overflow events.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import reduce

import numpy as np
from concord.golden.mvm.overflow import Events, misfits, output_events, wrap
from concord.net import network
from concord.net.arithmetic.integer import IntegerProduct, largest_sum
from concord.net.model import Model
from concord.spec.machine.config import Config

CHUNK = 1 << 15  #: Number of sums that are computed together; they fit the cache of a core.


@dataclass(frozen=True, kw_only=True, slots=True)
class Widths:
    """Widths of sums.

    Attributes:
        sum_bits:     Number of bits of the accumulator, sign included, 1 to 64.
        product_bits: Number of bits of a product, sign included, 1 to 64.
        output_bits:  Number of bits of a total, sign included, 1 to 64.
        lanes:        Number of products that are added in one cycle; with 1, every addition is checked.

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

    @classmethod
    def of(cls, config: Config) -> "Widths":
        """The widths of a machine; an accumulator of more than 64 bits counts as one of 64."""
        # Several tile engines multiply neighbouring tiles, whose lanes follow each other where a tile is a lane group.
        lanes = config.lanes * (config.tile_engines if config.groups == 1 else 1)
        return cls(sum_bits=min(64, config.sum_bits), product_bits=config.product_bits, output_bits=config.output_bits,
                   lanes=lanes)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Count:
    """Overflow events and largest magnitudes of a layer's sums for a batch.

    The magnitude of an exact integer v, before it wraps, is v, or -1 - v if v is negative. It fits b bits if its
    magnitude is below 2**(b - 1).

    Attributes:
        events:    Overflow events of all rows.
        additions: Number of partial sums that were checked.
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
        """Number of accumulator bits that the batch needed."""
        return int(np.maximum(self.partial, self.total).max()).bit_length() + 1

    def __add__(self, other: "Count") -> "Count":
        """The count of the same rows over the samples of both counts."""
        return Count(
            events=self.events + other.events,
            additions=self.additions + other.additions,
            rows=self.rows + other.rows,
            partial=np.maximum(self.partial, other.partial),
            total=np.maximum(self.total, other.total),
            product=np.maximum(self.product, other.product),
        )

    def beside(self, other: "Count") -> "Count":
        """The count of the rows of both counts."""
        arrays = {name: np.concatenate([getattr(self, name), getattr(other, name)])
                  for name in ("rows", "partial", "total", "product")}
        return Count(events=self.events + other.events, additions=self.additions + other.additions, **arrays)

    @property
    def number(self) -> int:
        """Number of events of all kinds."""
        return self.events.partial + self.events.product + self.events.output

    @property
    def excess(self) -> int:
        """Largest number of bits that a storage lacked, of any kind."""
        return max(self.events.excess_partial, self.events.excess_product, self.events.excess_output)


#: What counts the events of start + weights @ codes, with the arguments of `count`.
CountFunction = Callable[[np.ndarray, np.ndarray, np.ndarray, Widths], Count]


def count(weights: np.ndarray, codes: np.ndarray, start: np.ndarray, widths: Widths) -> Count:
    """Count the overflow events of start + weights @ codes.

    Args:
        weights: Integers[rows, columns].
        codes:   Integers[samples, columns], as they enter the product; a convolution has one sample for each patch.
        start:   Integers[rows], added last.
        widths:  Widths of the sums.

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


def count_groups(name: str, groups: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]], widths: Widths,
                 counter: CountFunction = count) -> Count:
    """Count the events of all groups of a product, whose rows stand side by side.

    Args:
        name:    Name of the product.
        groups:  Weights, codes and start of each group.
        widths:  Widths of the sums.
        counter: What counts.

    Raises:
        ValueError: a group cannot be counted; the sentence names the product.
    """
    try:
        return reduce(Count.beside, (counter(*group, widths) for group in groups))
    except ValueError as error:
        raise ValueError(f"layer {name!r}: {error}") from error


def _chunk(weights, codes, start, widths: Widths) -> Count:
    """Count the events of a few samples, codes[columns, samples]."""
    sums, lowest, highest = _sums(weights, codes, widths.lanes)
    totals = sums + start[:, None]
    partial, total = np.maximum(highest, ~lowest), _magnitude(totals)
    # A sum that never leaves the range of the accumulator never wraps, so only the other sums are counted one by one.
    over = np.maximum(partial, total) >= 1 << widths.sum_bits - 1
    events, rows, samples = Events(), np.zeros(len(weights), np.int64), over.any(0)
    if samples.any():
        mine = over.any(1)
        events, rows[mine] = _wraps(weights[mine], codes[:, samples], start[mine], widths)
    # A product is largest for the smallest or the largest code.
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
    """weights @ codes, and the lowest and the highest of 0 and all partial sums."""
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
    """Number of additions, for each row, whose exact result does not fit the accumulator, which wraps."""
    half, ring = 1 << widths.sum_bits - 1, (1 << widths.sum_bits) - 1
    # Counted from the lowest number of the accumulator, a sum that fits lies in 0..`ring`.
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


TOGETHER = 50  #: Number of samples that run together; a convolution has many patches for each.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProductUse:
    """One product of a model, and its overflow events over a batch.

    Attributes:
        product: The product.
        count:   Overflow events and largest magnitudes of the batch.
    """

    product: IntegerProduct
    count: Count


def dry_run(model: Model, inputs: np.ndarray, lengths: np.ndarray | None, widths: Widths,
            counter: CountFunction = count) -> list[ProductUse]:
    """Count the overflow events of every product for a batch, without wrapping. The arguments are those of `forward`.

    Raises:
        ValueError: a layer multiplies, but not integers.
    """
    products, counts = _products(model), {}

    def counted(product: IntegerProduct, codes: np.ndarray) -> np.ndarray:
        made = count_groups(product.name, zip(product.weights, codes, product.start, strict=True), widths, counter)
        counts[product.name] = counts[product.name] + made if product.name in counts else made
        return product.totals(codes)

    network.outputs(model, inputs, lengths, counted, TOGETHER)
    return [ProductUse(product=product, count=counts[product.name]) for product in products]


def wrapped(model: Model, inputs: np.ndarray, sum_bits: int, lengths: np.ndarray | None = None) -> np.ndarray:
    """Outputs uint16[samples, outputs] of a model whose accumulators have `sum_bits` bits.

    Raises:
        ValueError: a layer multiplies, but not integers.
    """
    _products(model)
    return network.outputs(
        model, inputs, lengths, lambda product, codes: wrap(product.totals(codes), sum_bits), TOGETHER)


def _products(model: Model) -> list[IntegerProduct]:
    return [product for layer in model.layers for product in layer.products()]
