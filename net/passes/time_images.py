"""Operators that compute each time step of a sequence alone, on an image whose columns are the time steps."""

from dataclasses import replace

from concord.net.arithmetic.windows import TimeAxis, Window
from concord.net.graph import INPUT, Graph, Node
from concord.net.ops.joins import Concatenation
from concord.net.ops.operator import Takes
from concord.net.ops.recurrent import Recurrence
from concord.net.ops.sequences import ToImage, ToSequence
from concord.net.ops.weighted import Convolution, Linear


def time_steps_as_images(graph: Graph, steps: int | None) -> Graph:
    """Linear layers, activation functions and sums of sequences become those of images of one row.

    A linear layer becomes a convolution of single pixels. A machine computes it as such: it needs the whole sequence.
    So does a recurrent layer that reads another one which runs through time in another direction.

    Args:
        graph: The network.
        steps: Number of time steps of the inputs, or None if it is not fixed.

    Raises:
        ValueError: such an operator reads a sequence whose number of time steps is not fixed.
    """
    if not any(_moves(node, graph) or steps and _turns(node, graph) for node in graph.nodes):
        return graph
    forms = _Forms(graph, steps)
    for node in graph.nodes:
        if _moves(node, graph):
            op = node.op
            if isinstance(op, Linear):
                op = Convolution(weight=op.weight[:, :, None, None], bias=op.bias, window=Window(size=(1, 1)),
                                 grid=op.grid)
            forms.add(Node(name=node.name, op=op, sources=tuple(map(forms.image, node.sources))))
            forms.images[node.name] = node.name
        elif steps and _turns(node, graph):
            (source,) = node.sources
            kept = Node(name=f"{node.name}_steps", op=ToSequence(), sources=(forms.image(source),))
            forms.add(kept)
            forms.add(replace(node, sources=(kept.name,)))
        elif isinstance(node.op, ToImage) and node.sources[0] in forms.images:
            forms.sequences[node.name] = forms.images[node.sources[0]]
        else:
            forms.add(Node(name=node.name, op=node.op, sources=tuple(map(forms.sequence, node.sources))))
            pixels = isinstance(node.op, ToSequence) and node.op.time is TimeAxis.COLUMNS
            if pixels and graph.shapes[node.sources[0]][1] == 1:  # it already has one row
                forms.images[node.name] = node.sources[0]
    forms.sequence(graph.output.name)
    return forms.finished()


def _moves(node: Node, graph: Graph) -> bool:
    """Whether a node computes each time step alone; a concatenation of sequences stays one."""
    return graph.types[node.name].sequence and node.op.takes is Takes.EITHER and not isinstance(node.op, Concatenation)


def _turns(node: Node, graph: Graph) -> bool:
    """Whether a recurrent layer reads the hidden vectors of another one that runs in another direction, or in both."""
    before = graph.source(node)
    if not isinstance(node.op, Recurrence) or before is None or not isinstance(before.op, Recurrence):
        return False
    return node.op.bidirectional or before.op.bidirectional or node.op.reverse != before.op.reverse


class _Forms:
    """The nodes that are made, and the form of each tensor that is there: a sequence, an image, or both."""

    def __init__(self, graph: Graph, steps: int | None):
        self.graph, self.steps, self.nodes = graph, steps, []
        self.images: dict[str, str] = {}
        self.sequences = {INPUT: INPUT}

    def add(self, node: Node):
        self.nodes.append(node)

    def sequence(self, name: str) -> str:
        """The name of a tensor as a sequence, or of what is none."""
        if name in self.images and name not in self.sequences and self._moved(name):
            self.sequences[name] = f"{name}_steps"
            self.add(Node(name=f"{name}_steps", op=ToSequence(), sources=(name,)))
        return self.sequences.get(name, name)

    def image(self, name: str) -> str:
        """The name of a sequence as an image."""
        if name not in self.images:
            steps = self.graph.types[name].steps or self.steps
            if steps is None:
                reader = self.graph.readers(name)[0].name
                raise ValueError(f"{reader!r}: it computes each time step of a sequence of any length, which takes "
                                 "sequences of one length; give data whose sequences all have one length")
            self.images[name] = f"{name or 'input'}_image"
            self.add(Node(name=self.images[name], op=ToImage(steps=steps), sources=(name,)))
        return self.images[name]

    def _moved(self, name: str) -> bool:
        node = self.graph.node(name)
        return node is not None and _moves(node, self.graph)

    def finished(self) -> Graph:
        output = self.sequences.get(self.graph.output.name, self.graph.output.name)
        return replace(self.graph, nodes=tuple(self.nodes)).ending_with(output)
