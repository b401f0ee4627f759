"""Attention, whose products of two computed tensors are in block floating point.

Exponents follow the numbers, so that attention needs no calibration; networks of integers have it in blocks, too.
"""

from dataclasses import dataclass
from math import prod

import numpy as np
from concord.golden.lib import float16
from concord.golden.lib.float16 import to_bits
from concord.golden.mfu.multifunction import activate
from concord.net.arithmetic.integer import IntegerProduct
from concord.net.arithmetic.native_vectors import computed_product
from concord.net.layers import checks
from concord.net.layers.layer import Layer, Trace
from concord.net.layers.reductions import spread
from concord.net.ops.attention import heads_of
from concord.spec.isa.operations import Operation
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format

#: Rough number of scores that are computed at once.
TOGETHER = 1 << 20
#: Largest sum of the powers of a query.
MOST = 16


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockAttention(Layer):
    """Each head adds up values, weighted by how well their keys fit its query; see `net.ops.attention.Attention`.

    For each head, its keys become rows of tiles, in blocks of neighbouring channels, and its values become tiles whose
    rows are channels, in blocks of neighbouring positions. Vectors of queries and of powers are multiplied by them:

        score = binary16(query . keys) + mask           power = exp(score - largest score) * share
        factor = 1 / sum of powers                      y = binary16(powers . values) * factor

    The weight of a value is power * factor. The largest power of a query is `share`: a power of two, so that the sum of
    powers is at most `MOST` and the product with values overflows only where these are beyond 65504 / `MOST`; times the
    largest mantissa, so that a block makes use of all mantissas.

    Blocks lie along the channels of a pixel, one after the other. Of keys and values, a block holds the channels of one
    head alone, with zeros instead of others; a block of queries holds whatever channels lie there.

    Attributes:
        name:           Name of the layer, unique in its model.
        queries:        Channels, rows and columns of the image of queries; its pixels are positions.
        keys:           Channels, rows and columns of the image of keys.
        values:         Channels, rows and columns of the image of values.
        heads:          Number of heads.
        weights_format: Format of keys and values in tiles.
        input_format:   Format that queries and powers are quantised to.
        block:          Number of elements of a block, the native dimension.
        mask:           uint16[1 or heads, queries, keys], what is added to scores; None for nothing.
    """

    name: str
    queries: tuple[int, int, int]
    keys: tuple[int, int, int]
    values: tuple[int, int, int]
    heads: int
    weights_format: Format
    input_format: Format
    block: int
    mask: np.ndarray | None = None

    title = "attention"

    def __post_init__(self):
        checks.exact(self)
        for what in ("queries", "keys", "values"):
            if len(shape := getattr(self, what)) != 3 or min(shape) < 1 or shape[0] % self.heads:
                raise ValueError(f"layer {self.name!r}, {what}: channels of {self.heads} heads, rows and columns are "
                                 f"needed, not {shape}; export the model again")
        if self.queries[0] != self.keys[0] or self.keys[1:] != self.values[1:]:
            raise ValueError(f"layer {self.name!r}: queries {self.queries}, keys {self.keys} and values {self.values} "
                             "do not fit each other; export the model again")
        if self.block < 1:
            raise ValueError(f"layer {self.name!r}, block: a native dimension is 1 or more, not {self.block}")
        masks = 1 if self.mask is not None and len(self.mask) == 1 else self.heads
        checks.array(self, "mask", np.uint16, (masks, self.positions, self.key_positions), optional=True)

    @property
    def positions(self) -> int:
        """Number of queries."""
        return prod(self.queries[1:])

    @property
    def key_positions(self) -> int:
        """Number of keys and of values."""
        return prod(self.keys[1:])

    @property
    def share(self) -> float:
        """What exponentials are multiplied by, before it is rounded to binary16."""
        fmt = self.input_format
        return fmt.highest * 2.0 ** -(fmt.bits - 1 + (-(-self.key_positions // MOST) - 1).bit_length())

    @property
    def inputs(self) -> int:
        return prod(self.queries)

    @property
    def takes(self) -> tuple[int, int, int]:
        return prod(self.queries), prod(self.keys), prod(self.values)

    @property
    def entering(self) -> tuple[int, int, int]:
        return self.queries

    @property
    def made(self) -> tuple[int, int, int]:
        """Channels, rows and columns of the result."""
        return self.values[0], *self.queries[1:]

    @property
    def outputs(self) -> int:
        return prod(self.made)

    @property
    def multiplications(self) -> int:
        return self.positions * self.key_positions * (self.queries[0] + self.values[0])

    def run(self, x, lengths, sums=IntegerProduct.totals):
        count = max(1, TOGETHER // (self.heads * self.positions * self.key_positions))
        parts = range(0, len(x[0]), count)
        return Trace(outputs=np.concatenate([self._some([one[at:at + count] for one in x]) for at in parts] or [
            np.zeros((0, self.outputs), np.uint16)]))

    def _some(self, x: list[np.ndarray]) -> np.ndarray:
        queries, keys, values = (heads_of(one.reshape(len(one), shape[0], -1), self.heads) for one, shape in zip(
            x, (self.queries, self.keys, self.values), strict=True))
        formats = self.weights_format, self.input_format, self.block
        scores = self._scores(queries, keys, formats)
        if self.mask is not None:
            scores = float16.add(scores, np.broadcast_to(self.mask, scores.shape))
        powers = activate(Activation.EXP, float16.sub(scores, spread(Operation.V_LARGEST, scores)))
        powers = float16.mul(powers, to_bits(np.full_like(powers, self.share, float)))
        factor = activate(Activation.RECIPROCAL, spread(Operation.V_SUM, powers))
        made = float16.mul(computed_product(values.swapaxes(-1, -2), powers, *formats), factor)
        return made.swapaxes(-1, -2).reshape(len(made), -1)

    def _scores(self, queries: np.ndarray, keys: np.ndarray, formats) -> np.ndarray:
        """Products uint16[samples, heads, queries, keys] of vectors uint16[samples, heads, positions, channels]."""
        size, found = queries.shape[-1], []
        whole = queries.swapaxes(1, 2).reshape(len(queries), self.positions, -1)
        for head in range(self.heads):
            first = head * size // self.block * self.block  # of the blocks that the head has a part of
            end = min(-(-(head + 1) * size // self.block) * self.block, whole.shape[-1])
            rows = np.zeros((len(keys), self.key_positions, end - first), np.uint16)
            rows[..., head * size - first:(head + 1) * size - first] = keys[:, head]
            found.append(computed_product(rows, whole[..., first:end], *formats))
        return np.stack(found, 1)
