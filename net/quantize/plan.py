"""The layers that a float network becomes: which operator is which layer, and what none of them can compute."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from concord.net.arithmetic.line import Line
from concord.net.arithmetic.windows import Window
from concord.net.graph import INPUT, Graph, Node
from concord.net.names import layer_names
from concord.net.ops.joins import Addition, ChannelGating, Multiplication
from concord.net.ops.operator import Operator, Shape
from concord.net.ops.pointwise import Gelu, HardSigmoid, LeakyRelu, Limits, Pointwise
from concord.net.ops.pooling import AveragePooling, GlobalAverage, MaxPooling, ProductResult
from concord.net.ops.recurrent import Recurrence
from concord.net.ops.reshape import Enlarging, Flatten
from concord.net.ops.scale import BatchNorm, Scale
from concord.net.ops.sequences import Last, ToSequence
from concord.net.ops.weighted import Convolution, Linear
from concord.net.passes.clips import with_clips
from concord.net.passes.fold import fold_scales, nothing_stays
from concord.net.passes.simplify import without_quantizers
from concord.net.passes.time_images import time_steps_as_images
from concord.net.quantize.apart import line_of, stays
from concord.net.quantize.results import IN_BINARY16, Results
from concord.net.quantize.results_apart import results_apart
from concord.net.wired import Wired
from concord.spec.numbers.activation import Activation

#: Operators with weights and a bias, and operators that average, which all have a quantiser of their input.
WEIGHTED, AVERAGES = (Convolution, Linear), (AveragePooling, GlobalAverage)
QUANTIZED = (*WEIGHTED, *AVERAGES)
#: Operators that compute nothing in a model: their readers read what they read. Only the last time step of two
#: directions is a layer, which joins both. A scale that is left is one of the network's input.
PASSING = (Flatten, Last, Scale)
#: Operators that give some of the numbers that they read.
SELECTING = (MaxPooling, Enlarging)
#: Functions of several operations, which are layers of their own.
APART = (LeakyRelu, Gelu, HardSigmoid, Limits)
#: Operators whose layer can apply an activation function to its result.
CARRYING = (*QUANTIZED, Addition, Multiplication, ChannelGating, MaxPooling, Enlarging)


class Unsupported(ValueError):
    """A network has operations that cannot be quantised; the message has a line for each."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Part:
    """One operator that becomes a layer, or the layers of both directions of a recurrent operator.

    Attributes:
        name:       Name of the layer.
        node:       Name of the node of the float network.
        op:         The operator; a maximum of single pixels where an activation function has a layer of its own.
        sources:    Names of the parts, or INPUT, whose results enter it.
        tensors:    Names of the tensors of the float network that enter it.
        shapes:     Shapes of these tensors.
        made:       Shape of the result.
        activation: Activation function of the result.
        ceiling:    Largest value that a relu lets through, 6 of a relu6, or None. Quantisers of its readers clip there.
        fold:       float64[outputs], the factor by which batch normalisation has multiplied each row of weights.
        spread:     Mean and deviation, float64[outputs] each, of the result, if batch normalisation sets them.
        line:       What a scale that is no layer makes of the network's input for each channel that enters, which the
            quantiser of the layer does, too; None for nothing. `shapes` and the numbers that enter are those behind it.
    """

    name: str
    node: str
    op: Operator
    sources: tuple[str, ...]
    tensors: tuple[str, ...]
    shapes: tuple[Shape, ...]
    made: Shape
    activation: Activation = Activation.NONE
    ceiling: float | None = None
    fold: np.ndarray | float = 1.0
    spread: tuple[np.ndarray, np.ndarray] | None = None
    line: Line | None = None

    @property
    def window(self) -> Window | None:
        """The window that moves over the image; None if there is none."""
        if isinstance(self.op, GlobalAverage):
            return Window(size=self.shapes[0][1:])
        return getattr(self.op, "window", None)

    @property
    def padded(self) -> bool:
        """Whether zeros are put around the input."""
        return self.window is not None and any(self.window.padding)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Plan(Wired[Part]):
    """A float network that can be quantised, a graph whose nodes are its parts.

    Attributes:
        graph: The network with scales folded into its layers, but for scales of its input that stay apart.
        parts: The layers that it becomes, in order.
    """

    graph: Graph
    parts: tuple[Part, ...]

    @property
    def nodes(self) -> tuple[Part, ...]:
        """The parts."""
        return self.parts

    def sources_of(self, node):
        return node.sources


def selects(part: Part) -> bool:
    """Whether a part is a maximum or an enlargement, which gives some of the numbers that it reads."""
    return isinstance(part.op, SELECTING)


def plan(network: Graph, steps: int | None = None, *, scales_apart: bool = False,
         results: Results = IN_BINARY16, integers: bool = True) -> Plan:
    """The layers of a float network, whose weights may stand for integers already.

    Args:
        network:      The network.
        steps:        Number of time steps of all inputs; None if it is not fixed, or if inputs are no sequences.
        scales_apart: Whether scales of the network's input stay ahead of the quantisers that read them, see
            `Part.line`, as far as `apart.stays` says. Otherwise all are folded into layers.
        results:      The products whose results are quantised by themselves.
        integers:     Whether products are in integers, whose codes clip what a relu with a ceiling gives.

    Raises:
        Unsupported: some operations cannot be quantised; the message has a line for each.
    """
    kept = stays if scales_apart else nothing_stays
    try:
        graph = with_clips(without_quantizers(network), integers=integers)
        graph = time_steps_as_images(fold_scales(graph, stays=kept), steps)
    except ValueError as error:
        raise Unsupported(str(error)) from error
    if problems := [problem for node in graph.nodes if (problem := _problem(node, graph))]:
        raise Unsupported("\n".join(problems))
    if graph.types[graph.output.name].sequence:
        raise Unsupported(f"output: a sequence; put a dense layer behind the last time step of {graph.output.name!r}")
    norms = _norms(graph)
    graph = results_apart(fold_scales(graph, batch_norm=True, stays=kept), results)
    planner = _Planner(graph, norms)
    for node in graph.nodes:
        planner.take(node)
    return Plan(graph=graph, parts=tuple(planner.parts.values()))


def _problem(node: Node, graph: Graph) -> str | None:
    """Why a node cannot be quantised, and what to do, or None."""
    op, source = node.op, graph.source(node)
    if isinstance(op, APART) and graph.types[node.name].sequence:
        return f"{node.name!r}: a {op.label} of a sequence; use a relu"
    if isinstance(op, AveragePooling) and op.window.dilation != (1, 1):
        return f"{node.name!r}: an average of windows with a dilation; use a dilation of 1"
    if isinstance(op, AveragePooling) and any(op.window.padding) and not op.count_padding:
        return f"{node.name!r}: an average that does not count its padding; count it in (count_include_pad)"
    if isinstance(op, Last) and source is None:
        return f"{node.name!r}: the last step of the input itself; put a recurrent layer before it"
    if isinstance(op, Last) and not isinstance(source.op, Recurrence) and (
            op.backward or not isinstance(source.op, ToSequence)):
        return f"{node.name!r}: the last step of a {source.op.label}; take the last step of recurrent layers themselves"
    return None


def _norms(graph: Graph) -> dict[str, BatchNorm]:
    """The batch normalisation after each layer that has one, by the name of the layer's node."""
    return {node.sources[0]: node.op for node in graph.nodes if isinstance(node.op, BatchNorm)}


class _Planner:
    """Takes the nodes of a network one after the other.

    Attributes:
        parts: The parts so far, by the name of the node whose result they give.
        named: The name of the part that gives the result of each node.
    """

    def __init__(self, graph: Graph, norms: Mapping[str, BatchNorm]):
        self.graph, self.norms = graph, norms
        self.names = layer_names(node.name for node in graph.nodes)
        self.parts: dict[str, Part] = {}
        self.named = {INPUT: INPUT}

    def take(self, node: Node):
        """Take one more node."""
        op, source = node.op, self.graph.source(node)
        joins = isinstance(op, Last) and isinstance(source.op, Recurrence) and source.op.bidirectional
        if isinstance(op, PASSING) and not joins:
            self.named[node.name] = self.named[node.sources[0]]
        elif isinstance(op, Pointwise) and not isinstance(op, APART):
            self._activate(node)
        elif isinstance(op, Addition | Multiplication) and len(node.sources) > 2:
            self._add_all(node)
        else:
            self._add(node, op, self.names[node.name], tuple(self.named[name] for name in node.sources), node.sources)

    def _add(self, node: Node, op: Operator, name: str, sources: Sequence[str], tensors: Sequence[str],
             activation: Activation = Activation.NONE, ceiling: float | None = None):
        shapes, norm = self.graph.shapes, self.norms.get(node.name)
        self.parts[name] = Part(
            name=name, node=node.name, op=op, sources=tuple(sources), tensors=tuple(tensors),
            shapes=(shapes[node.name],) if isinstance(op, ProductResult) else tuple(shapes[one] for one in tensors),
            made=shapes[node.name], activation=activation,
            ceiling=ceiling, line=line_of(tensors[0], shapes[tensors[0]][0], self.graph),
            **({} if norm is None else {"fold": norm.line()[0], "spread": norm.spread}))
        self.named[node.name] = name

    def _add_all(self, node: Node):
        """A sum or product of more than two tensors as ones of two."""
        total, name = node.sources[0], self.names[node.name]
        source = self.named[total]
        for index, term in enumerate(node.sources[1:], 1):
            last = name if index == len(node.sources) - 1 else f"{name}_{index}"
            self._add(node, node.op, last, (source, self.named[term]), (total, term))
            source = last

    def _activate(self, node: Node):
        """An activation function as part of the layer before it, or as a layer of its own for an image."""
        function, ceiling = node.op.activation, getattr(node.op, "ceiling", None)
        before = self.graph.source(node)
        carried = before is not None and isinstance(before.op, CARRYING) and self.graph.alone(node)
        if not carried and len(self.graph.shapes[node.sources[0]]) == 3:
            # A maximum of single pixels carries the function of an image that others read without it.
            self._add(node, MaxPooling(window=Window(size=(1, 1))), self.names[node.name],
                      (self.named[node.sources[0]],), node.sources, function, ceiling)
            return
        part = self.parts.get(self.named[node.sources[0]])
        carrying = part is not None and isinstance(part.op, CARRYING) and part.activation is Activation.NONE
        if (not carrying or not self._alone(node)) and not self.graph.types[node.name].sequence and ceiling is None:
            # A layer of its own computes the function of a vector that others read without it.
            self._add(node, node.op, self.names[node.name], (self.named[node.sources[0]],), node.sources, function)
            return
        if part is not None and part.activation is not Activation.NONE:
            raise Unsupported(f"{node.name!r}: a {function} behind a {part.activation}; leave one of them out")
        if not carrying or not self._alone(node):
            raise Unsupported(f"{node.name!r}: a {function} must follow a layer, pooling or sum that is not used "
                              "without it")
        self.parts[part.name] = replace(part, activation=function, ceiling=ceiling)
        self.named[node.name] = part.name

    def _alone(self, node: Node) -> bool:
        """Whether nothing but this node reads what it reads, directly or flattened."""
        while self.graph.alone(node):
            node = self.graph.source(node)
            if node is None or not isinstance(node.op, PASSING):
                return True
        return False


def check_ceilings(made: Plan, clips: Mapping[str, bool]):
    """Refuse a relu6 that no integer codes clip.

    Args:
        made:  The plan.
        clips: For the name of each part with a quantiser of its input, whether its codes clip at any number.

    Raises:
        Unsupported: something else reads the result of a relu6.
    """
    for part in (part for part in made.parts if part.ceiling is not None):
        found = [clips.get(reader.name, False) for reader in made.readers(part.name, selects)]
        if not found or not all(found):
            raise Unsupported(f"{part.name!r}: a relu6 is the clip of integer codes, so that only convolutions, "
                              "dense layers and averages with integer inputs may read it, directly or behind maxima; "
                              "use a relu")
