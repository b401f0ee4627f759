"""Attention after the quantisers of its operands, in real numbers or in the machine's arithmetic.

It has no numbers of its own to train; its gradients go to the layers that make queries, keys and values.
"""

from collections.abc import Sequence

import numpy as np
import torch
from concord.net.arithmetic.native_vectors import cut_by_heads
from concord.net.ops.attention import heads_of
from concord.net.quantize.attention import attention_layer
from concord.net.quantize.choices import BlockFormats
from concord.net.quantize.plan import Part
from concord.spec.numbers.activation import Activation
from concord.train.lib.curves import curve
from concord.train.lib.straight_through import binary16, plain
from concord.train.network.reductions import exponentials, total
from concord.train.qat.block_quantizer import BlocksFunction, check_sums, placed_blocks


def attention(part: Part, x: Sequence[torch.Tensor], formats: BlockFormats, *, lowered: bool) -> torch.Tensor:
    """The result float32[samples, channels, rows, columns] of an attention; see `net.layers.attention.BlockAttention`.

    Args:
        part:    The attention in the plan of its network.
        x:       Queries, keys and values, float32[samples, channels, rows, columns] each.
        formats: Formats of its operands.
        lowered: Whether to compute in the machine's arithmetic, rather than in real numbers.

    Raises:
        ValueError: float64 does not hold the exact sums of the machine.
    """
    layer, rounded = attention_layer(part, formats), binary16 if lowered else plain
    tiles, vectors, block = formats.weights, formats.inputs, formats.block
    queries, keys, values = (one.flatten(2) for one in x)
    queries = heads_of(BlocksFunction.apply(queries, vectors, block, 1), layer.heads)
    keys = heads_of(placed_blocks(keys, tiles, block, cut_by_heads(keys.shape[1], layer.heads, block)), layer.heads)
    values = heads_of(BlocksFunction.apply(values, tiles, block, 2), layer.heads).swapaxes(-1, -2)

    def product(rows: torch.Tensor, operands: torch.Tensor) -> torch.Tensor:
        """Products [..., operands, rows] of quantised rows [..., rows, columns] and operands [..., columns]."""
        if not lowered:
            return operands @ rows.swapaxes(-1, -2)
        check_sums(f"layer {part.name!r}", [rows], operands.detach().abs().max().item(), (tiles, vectors))
        return binary16(operands.double() @ rows.double().swapaxes(-1, -2) + 0.0)  # -0 becomes +0

    scores = product(keys, queries)
    if layer.mask is not None:
        scores = rounded(scores + torch.from_numpy(layer.mask.view(np.float16)).float())
    powers = rounded(exponentials(scores, lowered=lowered) * float(np.float16(layer.share)))
    factor = curve(Activation.RECIPROCAL, lowered)(total(powers, lowered=lowered))
    made = rounded(product(values, BlocksFunction.apply(powers, vectors, block, 3)) * factor)
    return made.swapaxes(-1, -2).reshape(len(made), *part.made)
