"""Scales of a network's input that stay ahead of the quantiser of the layers that read it.

Folded into the weights, a scale would make the columns of nearly constant inputs, by which a standardisation multiplies
much, so large that no other weight of a row would have a code left. R and O of the quantiser hold it instead.
"""

import numpy as np
from concord.net.arithmetic.line import Line
from concord.net.graph import INPUT, Graph, Node, flattens
from concord.net.ops.scale import Scale
from concord.net.ops.weighted import Weighted
from concord.net.passes.fold import reads_input
from concord.net.quantize.codes import InputCodes

#: Largest magnitude of R and O: where a product x R leaves the range of binary16, its code clips anyway.
LARGEST = 2.0**15
#: Largest magnitude of O at which the rounding of x R moves a code by a quarter at most.
FAR = 2.0**10


def stays(node: Node, graph: Graph) -> bool:
    """Whether a scale stays ahead of the quantisers of the layers that read it.

    It stays where it differs from channel to channel, or where a padding keeps its offset from being folded. All its
    readers have weights, and all paddings stand for one number. The pixels of a channel share numbers, unless
    nothing but dense layers reads the image.
    """
    if graph.sequence or not isinstance(node.op, Scale) or not reads_input(graph, node):
        return False
    readers = graph.readers(node.name, flattens)
    if not readers or not all(isinstance(one.op, Weighted) for one in readers):
        return False
    line = _line(node)
    padded = any(any(one.op.window.padding) for one in readers if hasattr(one.op, "window"))
    if not line.scale.all() or padded and np.ptp(line.zero):
        return False
    if graph.source(node) is not None and graph.readers(INPUT, flattens) != (node,):
        return False
    return not line.same or padded and bool(line.offset.any())


def line_of(tensor: str, channels: int, graph: Graph) -> Line | None:
    """What the network makes of its input to get a tensor of so many channels; None where it is the input itself."""
    node = graph.node(tensor)
    while node is not None and flattens(node):
        node = graph.source(node)
    if node is None or not isinstance(node.op, Scale) or not reads_input(graph, node):
        return None
    return _line(node).repeated(channels)


def _line(node: Node) -> Line:
    scale, offset = node.op.line()
    return Line(scale=scale, offset=offset)


def narrowed(line: Line, codes: InputCodes) -> Line | None:
    """What follows the scale of some channels so that x R + O is right in binary16; None where it is for all channels.

    Numbers that R or O cannot hold make a channel narrower, about a number that has a code, and its weights take the
    inverse. If a channel lies far from 0, as years do, the rounding of the product x R would move its codes. So R
    becomes a power of two, and O a number of binary16. A padding stands for 0, which must not move.

    Args:
        line:  What the network makes of each channel.
        codes: Codes of the result.
    """
    factor, shift = np.abs(line.scale) / codes.step, np.abs(line.offset - codes.offset) / codes.step
    largest, far = np.maximum(factor, shift), (shift > FAR) & (not codes.padded)
    if not far.any() and largest.max() <= LARGEST:
        return None
    scale = np.minimum(1.0, LARGEST / largest)
    scale = np.where(far, 2.0 ** np.floor(np.log2(factor * scale)) / factor, scale)
    low, high = (code * codes.step + codes.offset for code in codes.ends)
    offset = (1 - scale) * min(max(0.0, low), high)
    held = np.float64(np.float16((scale * line.offset + offset - codes.offset) / codes.step))
    return Line(scale=scale, offset=np.where(far, held * codes.step + codes.offset - scale * line.offset, offset))
