"""Results of products that are quantised by themselves, before anything else is computed with them.

Source: summary and figures 2 and 4 of the fourth document: the result of the matrix vector multiplication is quantised
to the second precision, for each operation, and the multi-function units compute with that.
"""

from collections.abc import Iterator
from dataclasses import replace

from concord.net.graph import Graph, Node
from concord.net.names import layer_names
from concord.net.ops.pooling import ProductResult
from concord.net.ops.recurrent import Recurrence
from concord.net.ops.reshape import Flatten
from concord.net.ops.weighted import Convolution, Linear
from concord.net.quantize.results import ENDING, Results


def results_apart(graph: Graph, results: Results) -> Graph:
    """The network with an operator for each result that is quantised by itself, which changes no real number.

    The products of recurrent layers are inside of these, which quantise them themselves.

    Raises:
        ValueError: `results` names what is no dense layer, convolution or recurrent layer.
    """
    names = layer_names(node.name for node in graph.nodes)
    products = {names[node.name]: node for node in graph.nodes
                if isinstance(node.op, Convolution | Linear) and not graph.types[node.name].sequence}
    known = [*products, *(names[node.name] for node in graph.nodes if isinstance(node.op, Recurrence))]
    if unknown := set(results.layers) - set(known):
        raise ValueError(f"there is no product {min(unknown)!r} whose result could be quantised; the network has "
                         f"{', '.join(known)}")
    chosen = [node for name, node in products.items() if results.of(name) is not None]
    renamed = {node.name: list(_nodes(node, graph))[-1].name for node in chosen}
    return graph.rewritten({
        node.name: (replace(node, sources=tuple(renamed.get(name, name) for name in node.sources)),
                    *_nodes(node, graph)) for node in chosen}, renamed)


def _nodes(node: Node, graph: Graph) -> Iterator[Node]:
    """What stands behind a product."""
    name = f"{node.name}{ENDING}"
    yield Node(name=name, op=ProductResult(), sources=(node.name,))
    if len(graph.shapes[node.name]) == 1:
        yield Node(name=f"{name}_flat", op=Flatten(), sources=(name,))
