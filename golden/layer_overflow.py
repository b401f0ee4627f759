"""Overflow events of whole layers for a batch, at widths of any machine, and what a narrow accumulator returns.

Source: S3; numerics.md of the specification, overflow events.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np

from golden import network, quantizer
from golden.float16 import mul
from golden.layers import LSTM, Dense, Layer
from golden.model import Model
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
    rows, columns = weights.shape
    largest = proven(weights, start, int(np.abs(codes).max(initial=0)))
    if largest >= 1 << 61:
        raise ValueError(f"a sum of this layer needs {largest.bit_length() + 1} bits; 62 can be counted")
    dtype = np.int32 if largest < 1 << 30 else np.int64
    beats = -(-columns // widths.lanes)
    spare = ((0, 0), (0, beats * widths.lanes - columns))
    weights, codes = (np.pad(values, spare).astype(dtype) for values in (weights, codes))
    events, found = Events(), np.zeros((4, rows), np.int64)
    size = max(1, CHUNK // weights.size)
    for first in range(0, len(codes), size):
        part, seen = _chunk(weights, codes[first : first + size], start, widths)
        events += part
        found = np.vstack([found[0] + seen[0], np.maximum(found[1:], seen[1:])])
    return Count(
        events=events,
        additions=len(codes) * rows * (beats + 1),
        rows=found[0],
        partial=found[1],
        total=found[2],
        product=found[3],
    )


def _chunk(weights, codes, start, widths: Widths) -> tuple[Events, np.ndarray]:
    """Events of a few samples, and int64[4, rows]: partial-sum events, magnitudes as in `Count`."""
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
    return events, np.stack([rows, partial.max(0), total.max(0), product.max(0)])


def _magnitude(values: np.ndarray) -> np.ndarray:
    return np.where(values < 0, ~values, values)


def proven(weights: np.ndarray, start: np.ndarray, largest_code: int) -> int:
    """sum|w| * max|x| + |start|, of the row where it is largest: no sum of that row is larger, whatever the input."""
    sums = np.abs(np.asarray(weights, np.int64)).sum(axis=1)
    return max(int(row) * largest_code + abs(int(first)) for row, first in zip(sums, start, strict=True))


def required_bits(layer: Layer) -> int:
    """Accumulator bits that hold every sum of a layer, whatever its input: proven from its weights."""
    largest = max(proven(matrix, start, -layer.input_format.lowest) for _, matrix, start in matrices(layer))
    return largest.bit_length() + 1


def matrices(layer: Layer) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Name, integers[rows, columns] and start[rows] of each product of a layer.

    Raises:
        ValueError: the layer has no integer products.
    """
    match layer:
        case Dense():
            return [(layer.name, layer.weights, layer.start)]
        case LSTM():
            found = []
            for name, stacked in (("input", layer.input_weights), ("recurrent", layer.recurrent_weights)):
                tall = stacked.reshape(-1, stacked.shape[-1])
                found.append((f"{layer.name}, {name}", tall, np.zeros(len(tall), np.int64)))
            return found
    raise ValueError(
        f"layer {layer.name!r} has no integer weights: overflow is counted in integer mode only, "
        "and what a sum in block floating point needs depends on the machine's exponents"
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProductUse:
    """One product of a model over a batch.

    Attributes:
        name:     Of the layer, and of its matrix where it has two.
        required: Accumulator bits that hold every sum, whatever the input.
        count:    What the batch did.
    """

    name: str
    required: int
    count: Count


def dry_run(model: Model, inputs: np.ndarray, lengths: np.ndarray | None, widths: Widths) -> list[ProductUse]:
    """Count every product of a model for a batch; the results go on unwrapped. Arguments as in `network.forward`."""
    named = [matrices(layer) for layer in model.layers]
    if lengths is None:
        lengths = np.full(len(inputs), inputs.shape[1])
    found, x = [], np.asarray(inputs, np.uint16)
    for index, (layer, trace) in enumerate(zip(model.layers, network.forward(model, inputs, lengths), strict=True)):
        for (name, matrix, start), codes in zip(named[index], _codes(layer, x, trace, lengths), strict=True):
            bits = proven(matrix, start, -layer.input_format.lowest).bit_length() + 1
            found.append(ProductUse(name=name, required=bits, count=count(matrix, codes, start, widths)))
        recurrent = index + 1 < len(model.layers) and isinstance(model.layers[index + 1], LSTM)
        x = trace.hidden if recurrent else trace.outputs
    return found


def _codes(layer: Layer, x, trace: network.Trace, lengths) -> Iterator[np.ndarray]:
    """The codes [samples, columns] that enter each product of a layer; of all time steps where it is recurrent."""
    if isinstance(layer, Dense):
        yield trace.codes
        return
    inside = np.arange(x.shape[1]) < np.asarray(lengths)[:, None]
    first = np.broadcast_to(layer.initial_hidden, (len(x), 1, layer.outputs))
    before = np.concatenate([first, trace.hidden[:, :-1]], axis=1)
    for values, scale in ((x, layer.input_quant_scale), (before, layer.hidden_quant_scale)):
        values = values[inside] if scale is None else mul(values[inside], scale)
        yield quantizer.quantize_integer(values, layer.input_format, unsigned=False)


def wrapped(model: Model, inputs: np.ndarray, sum_bits: int) -> np.ndarray:
    """Outputs uint16[samples, outputs] of a model of integer dense layers whose accumulators have `sum_bits` bits.

    Raises:
        ValueError: a layer is of another kind.
    """
    x = np.asarray(inputs, np.uint16)
    for layer in model.layers:
        if not isinstance(layer, Dense):
            raise ValueError(f"layer {layer.name!r} is no integer dense layer: what it wraps to is not defined here")
        totals = network.dense_totals(layer, network.dense_codes(layer, x))
        x = network.dense_outputs(layer, wrap(totals, sum_bits))
    return x
