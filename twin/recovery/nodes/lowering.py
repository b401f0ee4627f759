"""Data flow to nodes of elements: copies vanish, constants are folded, quantisers become operations of their own."""

from concord.spec.isa.memories import Mem
from concord.twin.flow.flow import Flow, Origin
from concord.twin.recovery.nodes import host
from concord.twin.recovery.nodes.bodies import Bodies
from concord.twin.recovery.nodes.chains import Chains
from concord.twin.recovery.nodes.graph import Graph
from concord.twin.recovery.nodes.loops import loops
from concord.twin.recovery.nodes.nodes import Lowered


def lower(flow: Flow, *, unquantized: bool = False) -> Lowered:
    """The program as nodes.

    Args:
        flow:        Its data flow.
        unquantised: Whether its numbers are those in full precision, and its quantisers are off.

    Raises:
        Unrecognised: the program does something that has no form here.
    """
    graph = Graph(flow, unquantized=unquantized)
    inputs = _inputs(graph)
    chains = Chains(graph)
    bodies, main, done = Bodies(graph, chains), [], 0
    for loop in loops(flow):
        main.append(_region(graph, chains, range(done, loop.passes[0])))
        main.append(bodies.body(loop))
        done = loop.last
    main.append(_region(graph, chains, range(done, len(flow.steps))))
    content = graph.look(flow.outputs, graph.config.mfu_lanes).reshape(-1)
    return Lowered(constants=graph.constants, nodes=graph.nodes, inputs=inputs, main=main,
                   outputs=host.outputs(graph.firmware, content))


def _inputs(graph: Graph) -> list[int]:
    """Nodes of the inputs; what the host sends, and what memories hold before the program starts, is known then."""
    inputs = [graph.leaf(node) for node in host.input_nodes(graph.firmware)]
    for index, value in enumerate(graph.flow.values):
        if value.origin is Origin.INPUT:
            graph.content[index] = host.input_content(graph.firmware, inputs, value.count)
        elif value.origin is Origin.IMAGE and value.mem != Mem.MATRIX_RF:
            graph.content[index] = graph.constants.image(value.mem)
    return inputs


def _region(graph: Graph, chains: Chains, steps: range) -> list[int]:
    """The nodes of steps that follow each other."""
    graph.order = []
    for index in steps:
        chains.step(graph.flow.steps[index], graph.flow.steps[index].reads)
    return graph.order
