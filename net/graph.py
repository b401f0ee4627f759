"""A network in float32: operators in order, each with its numbers.

Images lie channels first: [channels, rows, columns], of one row where the network has one-dimensional layers.
Sequences are [time, elements].
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import numpy as np
from concord.datasets.interface import Interface
from concord.lib.input_axes import InputAxes, check_table
from concord.lib.several import Results
from concord.net.ops.operator import Operator, Shape, TensorType
from concord.net.ops.reshape import Flatten
from concord.net.ops.sequences import ToImage
from concord.net.wired import INPUT, Wired


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Node:
    """One operator in a network.

    Attributes:
        name:    Unique name, from the file that the network came from.
        op:      What it computes, with its numbers.
        sources: Names of the nodes, or INPUT, whose results enter it.
    """

    name: str
    op: Operator
    sources: tuple[str, ...]

    def changed(self, **fields) -> "Node":
        """The node with other values of some fields of its operator.

        Raises:
            ValueError: the operator refuses them; the message names the node.
        """
        with naming(self.name):
            return replace(self, op=replace(self.op, **fields))


def flattens(node: Node) -> bool:
    """Whether a node only flattens what it reads, so that its readers read the same numbers."""
    return isinstance(node.op, Flatten)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Errors of an operator that name its node."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"node {name!r}: {error}") from error


@dataclass(frozen=True, kw_only=True, eq=False)  # without slots, for its cached properties
class Graph(Wired[Node]):
    """A network in float32.

    Attributes:
        name:   Name of the network.
        shape:  Shape of one sample: [inputs], [channels, rows, columns] or [channels, columns]; of a sequence, the
            shape of one time step.
        sequence: Whether a sample is a sequence of time steps.
        axes:   For each axis of `shape`, the axis of a sample in the file that it came from: (2, 0, 1) where that has
            channels last.
        nodes:  Operators, each after its sources. The last one gives the output.
        notes:  Sentences on what the file holds and is left to the host, such as a softmax of the output.
        softmax: Whether a softmax of the output follows, which the nodes do not hold: a machine with a softmax unit
            computes it, or else the host.
        origin: Where the network comes from: file, its SHA-256, producer, opset.
        file_shape: Shape of one sample, or of one time step, in the file that it came from; empty for that of `axes`.
        classes: Names of the outputs, if the file has them.
        results: Names and numbers of elements of the tensors that lie one after the other in the output; empty for one.
        table:  Vectors float32[rows, size] of an embedding in front of the nodes, which the host looks up; or None.
    """

    name: str
    shape: Shape
    sequence: bool
    axes: tuple[int, ...]
    nodes: tuple[Node, ...]
    notes: tuple[str, ...] = ()
    softmax: bool = False
    origin: Mapping[str, str] = field(default_factory=dict)
    file_shape: Shape = ()
    classes: tuple[str, ...] = ()
    results: Results = ()
    table: np.ndarray | None = None

    def __post_init__(self):
        if not self.nodes:
            raise ValueError("the network has no nodes; it needs one at least")
        sizes = self.shape
        if not 1 <= len(sizes) <= 3 or any(not isinstance(size, int) or size < 1 for size in sizes):
            raise ValueError(f"the input has the shape {list(sizes)}; one to three sizes of 1 or more are needed")
        if self.sequence and len(sizes) > 1:
            raise ValueError(f"the input is a sequence of {list(sizes)}; sequences of vectors are needed")
        check_table(self.table, prod(sizes))
        _ = self.input_axes  # refuses axes that do not fit
        names = [node.name for node in self.nodes]
        if len(set(names)) < len(names) or INPUT in names:
            raise ValueError("two nodes have one name, or one has none; names are unique")
        _ = self.types  # refuses operators that do not fit each other

    @cached_property
    def types(self) -> Mapping[str, TensorType]:
        """What is known of the result of each node by its name, and of INPUT.

        Raises:
            ValueError: a node takes what no node before it gives, or what does not fit its operator.
        """
        found = {INPUT: TensorType(shape=self.plane, sequence=self.sequence)}
        for node in self.nodes:
            if missing := [name for name in node.sources if name not in found]:
                raise ValueError(f"node {node.name!r} takes {missing[0]!r}, which no node before it gives")
            with naming(node.name):
                found[node.name] = node.op.result(*(found[name] for name in node.sources))
        return found

    @property
    def input_axes(self) -> InputAxes:
        """The axes of a sample, in the file and as the nodes take them."""
        return InputAxes(shape=self.shape, axes=self.axes, file=self.file_shape)

    @property
    def steps(self) -> int | None:
        """Number of time steps of every input sequence, which an image made of all of them fixes; None for any."""
        begun = {INPUT} if self.sequence else set()  # tensors with the time steps of the input
        for node in self.nodes:
            if node.sources[0] in begun and isinstance(node.op, ToImage):
                return node.op.steps
            if node.sources[0] in begun and self.types[node.name].sequence:
                begun.add(node.name)
        return None

    @property
    def interface(self) -> Interface:
        """What the network takes and gives."""
        return Interface(name=self.name, axes=self.input_axes, sequence=self.sequence, classes=self.classes,
                         steps=self.steps, outputs=prod(self.shapes[self.output.name]), results=self.results,
                         table=self.table)

    @property
    def plane(self) -> Shape:
        """Shape of the input as nodes take it: an image of one dimension has one row."""
        return (self.shape[0], 1, self.shape[1]) if len(self.shape) == 2 else self.shape

    @cached_property
    def shapes(self) -> Mapping[str, Shape]:
        """Shape of the result of each node, and of INPUT: [channels, rows, columns] or [elements].

        The shape of a sequence is that of one time step.
        """
        return {name: found.shape for name, found in self.types.items()}

    @property
    def output(self) -> Node:
        """The node that gives the output."""
        return self.nodes[-1]

    def sources_of(self, node):
        return node.sources

    def has(self, *operators: type[Operator]) -> bool:
        """Whether there is an operator of one of these classes."""
        return any(isinstance(node.op, operators) for node in self.nodes)

    def rewritten(
        self, changes: Mapping[str, Node | Sequence[Node]], renamed: Mapping[str, str] | None = None
    ) -> "Graph":
        """The network with other nodes instead of some, without nodes that the output then does not need.

        Args:
            changes: For names of nodes, the node or nodes that replace them; none leaves a node out.
            renamed: For names of tensors, the name that the other nodes, which are not changed, read instead.
        """
        renamed = dict(renamed or {})
        nodes = []
        for node in self.nodes:
            if node.name in changes:
                new = changes[node.name]
                nodes += [new] if isinstance(new, Node) else new
            else:
                nodes.append(replace(node, sources=tuple(renamed.get(name, name) for name in node.sources)))
        output = renamed.get(self.output.name, self.output.name)
        return replace(self, nodes=_needed(nodes, output))

    def without(self, *names: str) -> "Graph":
        """The network without some nodes; what read them reads their first source."""
        renamed = {}
        for node in self.nodes:
            if node.name in names:
                renamed[node.name] = renamed.get(node.sources[0], node.sources[0])
        return self.rewritten(dict.fromkeys(names, ()), renamed)

    def ending_with(self, name: str) -> "Graph":
        """The network whose output is the result of this node, without nodes that it does not need."""
        return replace(self, nodes=_needed(self.nodes, name))

    def run(self, x: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
        """The network's output in float64, the reference of imports and of quantised networks.

        Args:
            x:       Real numbers [samples, *shape], or [samples, time, *shape] where the network takes sequences.
            lengths: int[samples], time steps of each sequence; all time steps by default.

        Returns:
            float64[samples, outputs], or [samples, time, outputs] where the output is a sequence; an image is
            [samples, channels, rows, columns].
        """
        return self.forward(x, lengths)[self.output.name]

    def forward(self, x: np.ndarray, lengths: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Results of every node by name, as `run` gives the last one; INPUT is the input.

        Raises:
            ValueError: the input has another shape than the network takes.
        """
        x, shape = np.asarray(x, np.float64), tuple(self.shape)
        if x.shape[1 + self.sequence:] != shape or x.ndim != 1 + self.sequence + len(shape):
            takes = ["samples", *(["time"] if self.sequence else []), *shape]
            raise ValueError(f"inputs have the shape {list(x.shape)}, but {self.name!r} takes "
                             f"[{', '.join(str(size) for size in takes)}]")
        if len(shape) == 2:
            x = x[:, :, None]
        found = {INPUT: x}
        times = {INPUT: np.full(len(x), x.shape[1]) if lengths is None else np.asarray(lengths)}
        with np.errstate(over="ignore", invalid="ignore"):  # the exponential of a sigmoid; results show infinities
            for node in self.nodes:
                first = node.sources[0]
                with naming(node.name):
                    made = node.op.real(*(found[name] for name in node.sources), lengths=times[first])
                begins = self.types[node.name].sequence and not self.types[first].sequence
                times[node.name] = np.full(len(x), made.shape[1]) if begins else times[first]
                found[node.name] = made
        return found


def _needed(nodes: Sequence[Node], output: str) -> tuple[Node, ...]:
    """The nodes that an output depends on, each after its sources, the output last."""
    by_name = {node.name: node for node in nodes}
    needed, waiting = set(), [output]
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in needed:
            needed.add(name)
            waiting += by_name[name].sources
    return topological([node for node in nodes if node.name in needed])


def topological(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Nodes in an order in which each comes after its sources; those that are in order stay so."""
    names, done, found, left = {node.name for node in nodes}, set(), [], list(nodes)
    while left:
        ready = next((node for node in left if not (set(node.sources) & names) - done), None)
        if ready is None:
            raise ValueError(f"node {left[0].name!r} depends on its own result; a network has no circles")
        left.remove(ready)
        done.add(ready.name)
        found.append(ready)
    return tuple(found)
