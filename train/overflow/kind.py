"""The kind of a network by its layers, which decides the default steps of the overflow predictor."""

from collections.abc import Iterable

from concord.net.ops.recurrent import Recurrence
from concord.net.ops.weighted import Convolution, NodeLinear
from concord.train.overflow.record import NetworkKind


def kind_of(operators: Iterable) -> NetworkKind:
    """Kind of a network by its operators: of a graph's if it has any, of its recurrent ones, of convolutions, or dense.

    Args:
        operators: Operators of the parts of its plan, see `net.quantize.planned`.
    """
    operators = tuple(operators)
    if any(isinstance(op, NodeLinear) for op in operators):
        return NetworkKind.GCN
    cells = {op.cell.name.split("-")[0] for op in operators if isinstance(op, Recurrence)}
    for name in NetworkKind.LSTM, NetworkKind.GRU, NetworkKind.RNN:
        if name in cells:
            return name
    return NetworkKind.CNN if any(isinstance(op, Convolution) for op in operators) else NetworkKind.DNN
