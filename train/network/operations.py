"""The parts of a network without quantisers in PyTorch: in real numbers, and in the machine's arithmetic."""

from collections.abc import Callable

import numpy as np
import torch
from concord.net.arithmetic.windows import TimeAxis
from concord.net.graph import Graph
from concord.net.ops.joins import Addition, ChannelGating, Concatenation, Multiplication
from concord.net.ops.operator import Operator
from concord.net.ops.pointwise import Gelu, HardSigmoid, LeakyRelu, Limits, Pointwise
from concord.net.ops.pooling import MaxPooling
from concord.net.ops.reduction import FeatureNorm, SoftmaxInside
from concord.net.ops.reshape import Enlarging, Tokens
from concord.net.ops.scale import Offsets
from concord.net.ops.sequences import Last, ToImage, ToSequence
from concord.net.quantize.plan import Part
from concord.spec.numbers.activation import Activation
from concord.train.lib.curves import curve
from concord.train.lib.straight_through import binary16
from concord.train.network import reductions
from concord.train.recurrent.directions import last
from torch.nn import functional


def result(part: Part, x: list[torch.Tensor], lengths: torch.Tensor, *, lowered: bool) -> torch.Tensor:
    """What a part without quantisers makes of its inputs; of numbers in steps, too, where it is a maximum.

    Args:
        part:    The part.
        x:       float32[samples, ...] each.
        lengths: int64[samples], time steps of the first input, if it is a sequence.
        lowered: Whether inputs are binary16 numbers, and so is the result.
    """
    if isinstance(part.op, LeakyRelu):
        return _leaky(part.op, x[0], lowered)
    if isinstance(part.op, HardSigmoid):
        return _clipped(part.op, x[0], lowered)
    if isinstance(part.op, Limits):
        return _limited(part.op, x[0], lowered)
    if isinstance(part.op, Gelu):
        return _gelu(part.op, x[0], lowered)
    if isinstance(part.op, SoftmaxInside | FeatureNorm):
        return (reductions.softmax if isinstance(part.op, SoftmaxInside) else reductions.norm)(
            part.op, x[0], lowered=lowered)
    made = x[0] if isinstance(part.op, Pointwise) else RESULTS[type(part.op)](part.op, x, lengths)
    if lowered and isinstance(part.op, Addition | Multiplication | ChannelGating | Offsets):
        made = binary16(made)
    return curve(part.activation, lowered)(made)


def last_of(tensor: str, graph: Graph) -> Last:
    """The operator that has taken the last time step for a tensor, which may be flattened after it."""
    node = graph.node(tensor)
    while not isinstance(node.op, Last):
        node = graph.source(node)
    return node.op


def _sum(op: Addition, x: list[torch.Tensor], lengths: torch.Tensor) -> torch.Tensor:
    return x[0] + x[1]


def _leaky(op: LeakyRelu, x: torch.Tensor, lowered: bool) -> torch.Tensor:
    if not lowered:
        return functional.leaky_relu(x, op.slope)
    return torch.maximum(binary16(x * float(np.float16(op.slope))), x)


def _clipped(op: HardSigmoid, x: torch.Tensor, lowered: bool) -> torch.Tensor:
    if not lowered:
        return (op.alpha * x + op.beta).clip(0, op.ceiling)
    shift, slope, ceiling = np.float16([op.beta / op.alpha, op.alpha, op.ceiling]).astype(float).tolist()
    moved = binary16(x + shift) if shift else x
    return binary16(moved.clip(min=0) * slope).clip(max=ceiling)


def _limited(op: Limits, x: torch.Tensor, lowered: bool) -> torch.Tensor:
    lowest, highest = (float(np.float16(limit)) if lowered and limit is not None else limit
                       for limit in (op.lowest, op.highest))
    return x.clip(lowest, highest)


def _gelu(op: Gelu, x: torch.Tensor, lowered: bool) -> torch.Tensor:
    if not lowered:
        return functional.gelu(x, approximate="none" if op.exact else "tanh")
    line, cube = (float(np.float16(factor)) for factor in op.factors)
    inner = binary16(binary16(binary16(x * x) * cube) + line)
    return binary16(curve(Activation.SIGMOID, lowered)(binary16(inner * x)) * x)


def _product(op: Multiplication, x: list[torch.Tensor], lengths: torch.Tensor) -> torch.Tensor:
    return x[0] * x[1]


def _gated(op: ChannelGating, x: list[torch.Tensor], lengths: torch.Tensor) -> torch.Tensor:
    return x[0] * x[1].reshape(*x[0].shape[:2], 1, 1)


def _moved(op: Offsets, x: list[torch.Tensor], lengths: torch.Tensor) -> torch.Tensor:
    # Numbers of binary16, as the machine adds them, so that both forward passes add the same.
    return x[0] + torch.from_numpy(op.offset.astype(np.float16).astype(np.float32))


def _behind(op: Tokens, x: list[torch.Tensor], lengths: torch.Tensor) -> torch.Tensor:
    constant = torch.from_numpy(op.tokens.astype(np.float16).astype(np.float32))
    return torch.cat([constant.expand(len(x[0]), -1, -1), x[0].flatten(2)], 2)[:, :, None]


def _joined(op: Concatenation, x: list[torch.Tensor], lengths: torch.Tensor) -> torch.Tensor:
    return torch.cat(x, 2 if x[0].dim() == 3 else 1)


def _largest(op: MaxPooling, x: list[torch.Tensor], lengths: torch.Tensor) -> torch.Tensor:
    """The largest number of each window; padding, which each side has of its own, never is the largest."""
    above, below, left, right = op.window.padding
    padded = functional.pad(x[0], (left, right, above, below), value=-torch.inf) if any(op.window.padding) else x[0]
    return functional.max_pool2d(padded, op.window.size, op.window.stride, 0, op.window.dilation)


def _enlarged(op: Enlarging, x: list[torch.Tensor], lengths: torch.Tensor) -> torch.Tensor:
    (samples, _, *plane), made = x[0].shape, op.shape(tuple(x[0].shape[1:]))
    grid = op.factor if op.shuffled else (1, 1)
    parts = x[0].reshape(samples, *grid, made[0], *plane).expand(samples, *op.factor, made[0], *plane)
    return parts.permute(0, 3, 4, 1, 5, 2).reshape(samples, *made)


def _image(op: ToImage, x: list[torch.Tensor], lengths: torch.Tensor) -> torch.Tensor:
    return x[0].swapaxes(1, 2)[:, :, None]


def _sequence(op: ToSequence, x: list[torch.Tensor], lengths: torch.Tensor) -> torch.Tensor:
    return x[0].permute((0, 2, 3, 1) if op.time is TimeAxis.ROWS else (0, 3, 2, 1)).flatten(2)


def _last(op: Last, x: list[torch.Tensor], lengths: torch.Tensor) -> torch.Tensor:
    return last(x[0], lengths, op.backward)


#: The result of each operator without quantisers.
RESULTS: dict[type[Operator], Callable[[Operator, list[torch.Tensor], torch.Tensor], torch.Tensor]] = {
    Addition: _sum, Multiplication: _product, ChannelGating: _gated, Offsets: _moved, Tokens: _behind,
    Concatenation: _joined, MaxPooling: _largest, Enlarging: _enlarged, ToImage: _image, ToSequence: _sequence,
    Last: _last}
