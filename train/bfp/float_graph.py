"""Networks under training as float networks, and float networks as those under training.

A float network becomes layers of `golden.lazy.tensor_network`, where these compute the same; their numbers are not
taken over. The way back gives the float network of these layers with the numbers that training has found.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from concord.golden.lazy import tensor_network
from concord.golden.lazy.tensor_network import AveragePool, Conv, Dense, MaxPool, Recurrent, Relu, Residual
from concord.net.arithmetic.windows import Window
from concord.net.graph import INPUT, Graph, Node
from concord.net.ops import pointwise
from concord.net.ops.joins import Addition
from concord.net.ops.operator import Operator
from concord.net.ops.pooling import AveragePooling, GlobalAverage, MaxPooling
from concord.net.ops.recurrent import Direction, Recurrence
from concord.net.ops.reshape import Flatten
from concord.net.ops.sequences import Last
from concord.net.ops.weighted import Convolution, Linear
from concord.net.quantize.plan import Part, Plan, Unsupported
from concord.spec.numbers.activation import Activation


@dataclass(slots=True)
class _Planned:
    """Layers of a plan, part by part.

    Attributes:
        names: Names of parts with parameters, in the order of `tensor_network.named`.
    """

    plan: Plan
    names: list[str] = field(default_factory=list)

    def between(self, end: str, start: str) -> tuple[tensor_network.Layer, ...]:
        """The layers from the result `start` to the result of the part `end`."""
        found = []
        while end != start:
            part = self.plan.node(end)
            begin = self._fork(part) if isinstance(part.op, Addition) else part.sources[0]
            found.append((part, begin))
            end = begin
        return tuple(layer for part, begin in reversed(found) for layer in self._layers(part, begin))

    def _layers(self, part: Part, begin: str) -> tuple[tensor_network.Layer, ...]:
        op = part.op
        if isinstance(op, Addition):
            made = Residual(*(self.between(name, begin) for name in part.sources))
        else:
            made = _layer(part)
        if isinstance(op, Convolution | Linear):
            self.names.append(part.name)
        if part.activation not in (Activation.NONE, Activation.RELU) or part.ceiling is not None:
            raise Unsupported(f"{part.name!r}: training by lazy update has no {part.activation} "
                              f"{'with a ceiling' * (part.ceiling is not None)}; use a relu")
        return (made, Relu()) if part.activation is Activation.RELU else (made,)

    def _fork(self, part: Part) -> str:
        """The last result from which both terms of a sum come."""
        one, other = (self._behind(name) for name in part.sources)
        return next(name for name in one if name in other)

    def _behind(self, name: str) -> list[str]:
        """A result and those before it through which all of it comes, up to the input."""
        found = [name]
        while name != INPUT:
            part = self.plan.node(name)
            name = self._fork(part) if isinstance(part.op, Addition) else part.sources[0]
            found.append(name)
        return found


def planned(plan: Plan) -> tuple[tuple[tensor_network.Layer, ...], dict[str, str]]:
    """The layers of training for a float network, and the names of its parts by the names of these layers.

    Raises:
        Unsupported: a part has no layer in training, with a sentence for each.
    """
    problems = [problem for part in plan.parts if (problem := _problem(part))]
    if problems:
        raise Unsupported("\n".join(problems))
    made = _Planned(plan)
    layers = made.between(plan.parts[-1].name, INPUT)
    tensor_network.check(layers)
    return layers, dict(zip((name for name, _ in tensor_network.named(layers)), made.names, strict=True))


def _problem(part: Part) -> str | None:
    """Why training by lazy update has no layer for a part, and what to do, or None."""
    op, window = part.op, part.window
    if not isinstance(op, Convolution | Linear | AveragePooling | GlobalAverage | MaxPooling | Addition):
        return (f"{part.name!r}: training by lazy update has no {op.label}; it has convolutions, dense layers, "
                "pooling, relus and sums")
    if getattr(op, "groups", 1) > 1:
        return f"{part.name!r}: {op.groups} groups of channels, which training by lazy update does not have; use 1"
    if window is None:
        return None
    even = len(set(window.size)) == len(set(window.stride)) == len(set(window.padding)) == 1
    if not even or window.dilation != (1, 1) or any(window.padding) and not isinstance(op, Convolution):
        return (f"{part.name!r}: training by lazy update has square windows without dilation, with equal padding of "
                f"convolutions and none of pooling, not {window}")
    return None


def _layer(part: Part) -> tensor_network.Layer:
    """The layer of a part that is no sum."""
    op, window = part.op, part.window
    match op:
        case Convolution():
            return Conv(op.channels, op.outputs, window.size[0], window.stride[0], window.padding[0])
        case Linear():
            return Dense(op.weight.shape[1], op.outputs)
        case MaxPooling():
            return MaxPool(window.size[0], window.stride[0])
    return AveragePool(window.size[0], window.size[0] if isinstance(op, GlobalAverage) else window.stride[0])


@dataclass(slots=True)
class _Drawn:
    """Nodes of a float network, one after the other.

    Attributes:
        values: Real parameters by name.
        names:  Names of nodes, by the names of layers.
        image:  Whether what was made last is an image.
    """

    values: Mapping[str, np.ndarray]
    names: Mapping[str, str]
    image: bool
    nodes: list[Node] = field(default_factory=list)

    def branch(self, layers, prefix: str, source: str) -> str:
        """Draw layers that read a result, and return the name of theirs."""
        for index, layer in enumerate(layers):
            name = f"{prefix}{index}"
            if isinstance(layer, Dense) and self.image:
                source, self.image = self._add(self._free(f"{name}.flat"), Flatten(), source), False
            if isinstance(layer, Recurrent):
                for one in (f"{name}.{index}" for index in range(len(layer.hidden))):
                    source = self._add(self.names[one], self._recurrence(layer, one), source)
                source = self._add(self._free(f"{name}.last"), Last(), source)
            elif isinstance(layer, Residual):
                image = self.image
                ends = []
                for side, inner in (("body", layer.body), ("shortcut", layer.shortcut)):
                    self.image = image
                    ends.append(self.branch(inner, f"{name}.{side}.", source))
                source = self._add(self._free(f"{name}.sum"), Addition(), *ends)
            else:
                op = self._operator(layer, name)
                source = self._add(self.names.get(name) or self._free(f"{name}.{op.kind}"), op, source)
        return source

    def _free(self, name: str) -> str:
        """The name, or one like it that no node with parameters has."""
        while name in self.names.values():
            name += "_"
        return name

    def _add(self, name: str, op: Operator, *sources: str) -> str:
        self.nodes.append(Node(name=name, op=op, sources=sources))
        return name

    def _operator(self, layer, name: str) -> Operator:
        match layer:
            case Conv():
                window = Window(size=(layer.size,) * 2, stride=(layer.stride,) * 2, padding=(layer.padding,) * 4)
                return Convolution(**self._numbers(name), window=window)
            case Dense():
                return Linear(**self._numbers(name))
            case MaxPool():
                return MaxPooling(window=Window(size=(layer.size,) * 2, stride=(layer.stride,) * 2))
            case AveragePool():
                window = Window(size=(layer.size,) * 2, stride=(layer.stride,) * 2)
                return AveragePooling(window=window, count_padding=True)
            case Relu():
                return pointwise.Relu()
        raise TypeError(f"no operator computes {layer}")

    def _recurrence(self, layer: Recurrent, name: str) -> Recurrence:
        def stacked(part: str) -> np.ndarray:
            return np.float32([self.values[f"{name}.{gate.name}.{part}"] for gate in layer.cell.gates])

        return Recurrence(cell=layer.cell, directions=(Direction(
            input_weights=stacked("input"), recurrent_weights=stacked("recurrent"), bias=stacked("bias"),
            vectors={key: np.float32(self.values[f"{name}.{key}"]) for key in layer.cell.vectors}),))

    def _numbers(self, name: str) -> dict[str, np.ndarray]:
        return {part: np.float32(self.values[f"{name}.{part}"]) for part in ("weight", "bias")}


def drawn(layers: tuple[tensor_network.Layer, ...], shape: tuple[int, ...], values: Mapping[str, np.ndarray],
          names: Mapping[str, str], title: str = "network") -> Graph:
    """The float network of layers of training.

    Args:
        shape:  Shape of one sample.
        values: Real parameters by name, as `tensor_network.named` names layers.
        names:  Names of nodes with parameters, by the names of their layers, "0.1" for the second one of `Recurrent`.
        title:  Name of the network.
    """
    made = _Drawn(values, names, len(shape) == 3)
    made.branch(layers, "", INPUT)
    sequence = isinstance(layers[0], Recurrent)
    return Graph(name=title, shape=shape, sequence=sequence, axes=tuple(range(len(shape))), nodes=tuple(made.nodes))
