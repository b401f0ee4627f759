"""Formats of a machine in which a network that is quantised already keeps its integers."""

from collections.abc import Iterable
from itertools import product

from concord.net.graph import Graph
from concord.net.ops.grid import Quantize
from concord.net.ops.weighted import Weighted
from concord.net.qdq.network import keep
from concord.spec.numbers.formats import WIDEST_FIXED, Format


def formats(network: Graph) -> tuple[Format, Format]:
    """The narrowest formats of weights and of operands in which a network keeps its integers.

    Raises:
        ValueError: no machine computes it as its file says; the message lists what the nearest one cannot compute.
    """
    weights = (node.op.grid.bits for node in network.nodes if isinstance(node.op, Weighted) and node.op.grid)
    operands = (node.op.grid.bits for node in network.nodes if isinstance(node.op, Quantize))
    widest = Format(bits=WIDEST_FIXED)
    _, chosen = _first(network, ((widest, one) for one in (*_formats(operands), widest)))
    return _first(network, ((one, chosen) for one in (*_formats(weights), widest)))


def _formats(bits: Iterable[int]) -> list[Format]:
    """Formats of integers of as many bits, or of one bit more, which unsigned integers may need."""
    found = sorted({more for one in bits for more in (one, one + 1) if 2 <= more <= WIDEST_FIXED})
    return [Format(bits=one, symmetric=symmetric) for one, symmetric in product(found, (True, False))]


def _first(network: Graph, choices: Iterable[tuple[Format, Format]]) -> tuple[Format, Format]:
    """The first formats of weights and of operands in which a machine computes a network."""
    refused = []
    for weights, operands in choices:
        try:
            keep(network, weights, operands)
        except ValueError as error:
            refused.append(str(error))
            continue
        return weights, operands
    nearest = min(refused, key=lambda text: text.count("\n"))
    raise ValueError(nearest.replace("the machine cannot", "there is no machine for it; the nearest one cannot", 1))
