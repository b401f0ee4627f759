"""A network in float32 as it was trained elsewhere: operations in order, each with its numbers.

Images lie channels first: [channels, rows, columns], of one row where the network has one-dimensional layers.
Sequences are [time, features].
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

#: Name of the network's input in `Node.sources`.
INPUT = ""


class Op(StrEnum):
    """What a node computes. Its attributes and tensors follow each name; tensors are float32.

    A convolution or a dense layer of a network that is quantised already has the weights that its integers stand for.
    The tensors weight_scale and weight_zero_point [outputs] and the attributes weight_bits, weight_signed and
    weight_narrow say which integers these are: weight / weight_scale + weight_zero_point.

    A window has the attributes size, stride and dilation, (down, across) each, and padding, which are zeros (above,
    below, left, right).
    """

    CONV = "conv"  #: window without size, groups; weight [outputs, channels / groups, rows, columns], bias [outputs]
    DENSE = "dense"  #: weight [outputs, inputs], bias [outputs]; at each time step of a sequence
    BATCH_NORM = "batch_norm"  #: epsilon; weight, bias, mean, variance [channels]
    AFFINE = "affine"  #: y = scale * x + offset; scale, offset [channels], or [inputs] of a vector
    RELU = "relu"  #: ceiling: largest result, or None
    SIGMOID = "sigmoid"
    TANH = "tanh"
    HARD_SIGMOID = "hard_sigmoid"  #: alpha, beta: y = max(0, min(1, alpha * x + beta))
    HARD_SWISH = "hard_swish"  #: y = x * max(0, min(1, x / 6 + 1/2))
    MAX_POOL = "max_pool"  #: window
    AVERAGE_POOL = "average_pool"  #: window, count_padding: whether zeros of the padding count
    GLOBAL_AVERAGE = "global_average"  #: the mean of each channel, a vector
    ADD = "add"
    CONCAT = "concat"  #: along channels, or elements of vectors
    FLATTEN = "flatten"  #: an image becomes a vector, channel by channel
    LAST = "last"  #: the last vector of a sequence, forward and backward one each at their own end
    LSTM = "lstm"  #: recurrent: weight_ih [gates * hidden, inputs], weight_hh, bias_ih, bias_hh as `torch.nn.LSTM` has
    GRU = "gru"  #: recurrent; as `torch.nn.GRU`, whose reset gate comes behind the product (linear_before_reset)
    GRU_BEFORE = "gru_before"  #: recurrent; the reset gate comes before the product
    QUANTIZE = "quantize"  #: scale, zero_point, bits, signed, narrow: y = scale * (integer - zero_point), see `Grid`
    RNN_TANH = "rnn_tanh"  #: recurrent
    RNN_RELU = "rnn_relu"  #: recurrent


#: Operations whose result is a sequence of hidden vectors. With attribute `bidirectional` they have the tensors
#: again with `_reverse` behind their names, and results are joined, forward first.
RECURRENT = frozenset({Op.LSTM, Op.GRU, Op.GRU_BEFORE, Op.RNN_TANH, Op.RNN_RELU})


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Node:
    """One operation.

    Attributes:
        name:       Unique name, from the file that the network came from.
        op:         What it computes.
        sources:    Names of the nodes, or INPUT, whose results enter it.
        attributes: Numbers of the operation, see `Op`.
        tensors:    Trained numbers, see `Op`.
    """

    name: str
    op: Op
    sources: tuple[str, ...]
    attributes: Mapping[str, object] = field(default_factory=dict)
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FloatNetwork:
    """A network in float32.

    Attributes:
        name:   Name of the network.
        shape:  Shape of one sample: [inputs], [channels, rows, columns] or [channels, columns]; of a sequence, that of
            one time step.
        sequence: Whether a sample is a sequence of time steps.
        axes:   For each axis of `shape`, the axis of a sample in the file that it came from: (2, 0, 1) where that has
            channels last.
        nodes:  Operations, each after its sources. The last one gives the output.
        notes:  Sentences on what of the file is left to the host, such as a softmax of the output.
        softmax: Whether a softmax of the output follows, which the nodes do not hold: a machine with a softmax unit
            computes it, or else the host.
        origin: Where the network comes from: file, its SHA-256, producer, opset.
    """

    name: str
    shape: tuple[int, ...]
    sequence: bool
    axes: tuple[int, ...]
    nodes: tuple[Node, ...]
    notes: tuple[str, ...] = ()
    softmax: bool = False
    origin: Mapping[str, str] = field(default_factory=dict)

    @property
    def recurrent(self) -> bool:
        """Whether there are recurrent operations."""
        return any(node.op in RECURRENT for node in self.nodes)
