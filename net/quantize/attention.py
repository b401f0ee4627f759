"""Attention in a quantised network: its layer, and its operator in real numbers with the quantisers of its operands."""

from dataclasses import dataclass

import numpy as np
from concord.net.arithmetic.native_vectors import cut_by_heads, real_blocks
from concord.net.layers.attention import BlockAttention
from concord.net.lowering.rounding import binary16
from concord.net.ops.attention import Attention, heads_of
from concord.net.quantize.choices import BlockFormats
from concord.net.quantize.plan import Part


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class QuantizedAttention(Attention):
    """An attention whose operands are the numbers that their blocks stand for.

    Attributes:
        formats: Formats of keys and values, of queries and powers, and the size of their blocks.
        share:   The largest power of a query, see `BlockAttention`.
    """

    formats: BlockFormats
    share: float

    def real(self, *inputs, lengths):
        weights, entering, block = self.formats.weights, self.formats.inputs, self.formats.block
        queries, keys, values = (x.reshape(*x.shape[:2], -1) for x in inputs)
        queries = real_blocks(queries.swapaxes(1, 2), entering, block).swapaxes(1, 2)
        at = cut_by_heads(keys.shape[1], self.heads, block)
        keys = real_blocks(keys.swapaxes(1, 2), weights, block, at).swapaxes(1, 2)
        queries, keys, values = (heads_of(x, self.heads) for x in (queries, keys, real_blocks(values, weights, block)))
        scores = queries @ keys.swapaxes(-1, -2) + (0 if self.mask is None else self.mask)
        powers = np.exp(scores - scores.max(-1, keepdims=True)) * self.share
        made = real_blocks(powers, entering, block) @ values / powers.sum(-1, keepdims=True)
        return made.swapaxes(-1, -2).reshape(len(made), -1, *inputs[0].shape[2:])


def attention_layer(part: Part, formats: BlockFormats) -> BlockAttention:
    """The layer of a part."""
    op, (queries, keys, values) = part.op, part.shapes
    mask = None if op.mask is None else binary16(op.mask, f"layer {part.name!r}, mask")
    return BlockAttention(name=part.name, queries=queries, keys=keys, values=values, heads=op.heads,
                          weights_format=formats.weights, input_format=formats.inputs, block=formats.block, mask=mask)


def simulated_attention(part: Part, formats: BlockFormats) -> QuantizedAttention:
    """The operator of a part in real numbers."""
    return QuantizedAttention(heads=part.op.heads, mask=part.op.mask, formats=formats,
                              share=attention_layer(part, formats).share)
