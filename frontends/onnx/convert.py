"""From the nodes of an ONNX graph to those of a float network."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from concord.frontends.onnx.ending import Ending, choose, end, in_order, softmaxed
from concord.frontends.onnx.input_shape import RECURRENT, Axes, GraphInput
from concord.frontends.onnx.joined import joined
from concord.frontends.onnx.lib.builder import Builder, Decided
from concord.frontends.onnx.lib.problems import Misplaced, Problem, Refused
from concord.frontends.onnx.lib.scores import Scores
from concord.frontends.onnx.lib.step import (
    STANDARD,
    FileCodes,
    FileNode,
    HostValue,
    UnknownValue,
    Value,
    evaluate,
    inferred,
    qualified,
)
from concord.frontends.onnx.lib.views import LIMIT, SampleForm, View, ViewSource
from concord.frontends.onnx.nodes.attention import follow
from concord.frontends.onnx.nodes.layout import BEHIND, HOST, at_host
from concord.frontends.onnx.nodes.reduction import inside
from concord.frontends.onnx.nodes.registry import HANDLERS, REFUSED, advice
from concord.frontends.onnx.onnx_file import opset
from onnx import AttributeProto, helper, numpy_helper

GRAPHS = (AttributeProto.GRAPH, AttributeProto.GRAPHS)  #: Attributes that are graphs.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Conversion:
    """What became of a graph.

    Attributes:
        axes:     What the axes of the graph's input mean.
        build:    The nodes that were made, and the form of the input.
        values:   Every tensor of the graph by name.
        problems: Nodes that cannot be computed.
        ending:   Where the network ends; None if there are problems.
        results:  Names and sizes of several outputs side by side, see `Graph`.
    """

    axes: Axes
    build: Builder
    values: dict[str, Value]
    problems: list[Problem]
    ending: Ending | None
    results: tuple[tuple[str, int], ...] = ()


#: Kinds of nodes with most of the weights of networks.
WITH_WEIGHTS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU", "RNN")


def convert(path: Path, model: onnx.ModelProto, entry: GraphInput, output: str | None) -> Conversion:
    """Convert a graph under the first choice of the input's axes that leaves no problems, or the fewest.

    Args:
        path:   File, for messages.
        model:  The model.
        entry:  The graph's input.
        output: Name of the output that the network gives, or None for the only one.

    Raises:
        ValueError: the input is too large, or the output is not to be had.
    """
    found = []
    for axes in entry.choices:
        found.append(_decided(path, model, entry, axes, output))
        if not found[-1].problems:
            break
    return min(found, key=lambda one: (sum(problem.kind in RECURRENT for problem in one.problems), len(one.problems)))


def _decided(path: Path, model: onnx.ModelProto, entry: GraphInput, axes: Axes, output: str | None) -> Conversion:
    """Convert, and start again once the form of the input is known."""
    source = _input(axes)
    while True:
        try:
            made = _converted(model, entry, axes, Builder(source), output)
            return made if made.problems else _ended(path, model, made, output)
        except Decided as decision:
            source = decision.source


def _input(axes: Axes) -> ViewSource:
    """The network's input, numbered as the file has it."""
    elements = int(np.prod(axes.shape, dtype=np.int64))
    if elements > LIMIT:
        raise ValueError(f"the input {list(axes.shape)} has {elements:,} elements, more than {LIMIT:,}; export the "
                         "network for a batch of one")
    numbers = np.arange(elements, dtype=np.int32).reshape(axes.shape)
    if axes.time is None:
        return ViewSource(name="", form=SampleForm.OPEN, order=numbers if axes.samples == 0 else numbers[None])
    order = np.moveaxis(numbers, axes.time, 0)
    order = order[None] if axes.samples is None else np.swapaxes(order, 0, 1)
    return ViewSource(name="", form=SampleForm.SEQUENCE, order=np.ascontiguousarray(order), open_time=axes.open_time)


def _converted(model: onnx.ModelProto, entry: GraphInput, axes: Axes, build: Builder, output: str | None) -> Conversion:
    numbers = np.arange(build.input.order.size, dtype=np.int32).reshape(axes.shape)
    values: dict[str, Value] = {"": None, entry.name: View(source=build.input, numbers=numbers)}
    values |= {tensor.name: _constant(tensor) for tensor in model.graph.initializer}
    problems = []
    wanted = {one.name for one in model.graph.output} if output is None else {output}
    for node in _needed(list(joined(model.graph)), wanted):
        step = _step(model, node, values)
        try:
            made = _checked(step, build)
        except Refused as error:
            # What follows from an earlier refusal is no problem of its own.
            if not (isinstance(error, Misplaced) and any(_guessed(value) for value in step.values)):
                problems.append(Problem(node=step.name, kind=step.kind, reason=error.reason, advice=error.advice))
            made = _guesses(step, build)
        for name, value in zip(node.output, [*made, *[None] * len(node.output)], strict=False):
            values[name] = value
    return Conversion(axes=axes, build=build, values=values, problems=problems, ending=None)


def _needed(nodes: list[onnx.NodeProto], wanted: set[str]) -> list[onnx.NodeProto]:
    """The nodes on which tensors depend; all of them where one has a graph of its own, which may read any tensor."""
    if any(attribute.type in GRAPHS for node in nodes for attribute in node.attribute):
        return nodes
    wanted, found = set(wanted), []
    for node in reversed(nodes):
        if wanted & set(node.output):
            found.append(node)
            wanted |= set(node.input)
    return found[::-1]


def _ended(path: Path, model: onnx.ModelProto, made: Conversion, output: str | None) -> Conversion:
    outputs = {one.name: made.values.get(one.name) for one in model.graph.output}
    if output is not None and isinstance(made.values.get(output), HostValue | View):
        outputs[output] = made.values[output]  # any tensor may be the network's output
    view = choose(path, outputs, output)
    for name, value in outputs.items():
        if output is None and not isinstance(value, HostValue | View):
            reason = f": {value.reason}" if isinstance(value, UnknownValue) and value.reason else ""
            made.build.note(f"The output {name!r} is left out, because the machine does not compute it{reason}.")
    tensor = next((name for name, value in made.values.items() if value is view), None)
    tensor = tensor or made.build.tensors[view.source.name]
    try:
        return replace(made, ending=replace(end(made.build, view, tensor), softmax=softmaxed(outputs, output)))
    except Refused as error:
        return replace(made, problems=[Problem(node=tensor, kind="output", reason=error.reason, advice=error.advice)])


def _frontier(model: onnx.ModelProto, made: Conversion, outputs: Iterable[str]) -> tuple[str, ...]:
    """The last tensors that the machine computes, of those from which outputs follow; none where one needs the input.

    Each is all that a node of the network gives, in its order.
    """
    makers = {name: node for node in joined(model.graph) for name in node.output}
    found, left, seen = [], list(outputs), set()
    while left:
        name = left.pop()
        value = made.values.get(name)
        if name in seen or value is None or isinstance(value, np.ndarray):
            continue  # a constant, or left out
        seen.add(name)
        if isinstance(value, View) and not value.source.guessed and value.source is not made.build.input and (
                in_order(value, channels_last=False)):
            found.append(name)
        elif name not in makers:
            return ()
        else:
            left += makers[name].input
    order = list(makers)
    return tuple(sorted(found, key=order.index))


def ahead(model: onnx.ModelProto, made: Conversion) -> str:
    """Names of the tensors ahead of all that is refused, if most layers with weights lie ahead of them; or ""."""
    names = _frontier(model, made, [one.name for one in model.graph.output])
    nodes = list(joined(model.graph))

    def layers(some: list[onnx.NodeProto]) -> int:
        return sum(node.op_type in WITH_WEIGHTS for node in some)

    return ",".join(names) if 2 * layers(_needed(nodes, set(names))) > layers(nodes) else ""


def _step(model: onnx.ModelProto, node: onnx.NodeProto, values: dict[str, Value]) -> FileNode:
    attributes = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        elif isinstance(value, list) and value and isinstance(value[0], bytes):
            value = [text.decode(errors="replace") for text in value]
        attributes[attribute.name] = value
    return FileNode(
        name=node.name or next(name for name in node.output if name), kind=node.op_type, attributes=attributes,
        values=tuple(values.get(name, UnknownValue()) for name in node.input), names=tuple(node.input),
        outputs=tuple(node.output), opset=opset(model, node.domain), proto=node)


def _constant(tensor: onnx.TensorProto) -> np.ndarray:
    """The numbers of a tensor.

    Raises:
        ValueError: there are more or fewer than its shape needs, or they are of a type that is not known.
    """
    if tensor.data_type not in helper.get_all_tensor_dtypes():
        raise ValueError(f"the constant {tensor.name!r} is of the type {tensor.data_type}, which is not known; export "
                         "the network again")
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ValueError(f"the constant {tensor.name!r} is damaged ({error}); export the network again") from error


def _checked(step: FileNode, build: Builder) -> list[Value]:
    """Results of a node.

    Raises:
        Refused: it cannot be computed, or its inputs and attributes do not fit each other.
    """
    try:
        return _results(step, build)
    except Refused:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, MemoryError) as error:
        reason = str(error).strip() or type(error).__name__
        raise Misplaced(f"its inputs and attributes do not fit each other ({reason})",
                        "check it in the tool that wrote it, and export the network again") from error


def _results(step: FileNode, build: Builder) -> list[Value]:
    if unknown := [value for value in step.values if isinstance(value, UnknownValue)]:
        if unknown[0].reason:
            raise Refused(unknown[0].reason, "leave this node out")
        if step.kind in REFUSED:  # whatever its inputs are
            raise Refused(*advice(step.kind))
        return [UnknownValue() for _ in step.outputs]
    if any(isinstance(value, Scores) for value in step.values):
        return follow(step, build)
    kind = qualified(step.proto.domain, step.kind)
    if kind in HANDLERS and kind not in BEHIND:
        step = inside(step, build)
    if any(isinstance(value, HostValue) for value in step.values):
        return at_host(step, build)
    computed = any(isinstance(value, View | FileCodes) for value in step.values)
    if kind == "Constant":
        return evaluate(step, ())
    if not computed and kind.startswith(("Random", "Multinomial", "Bernoulli")):
        raise Refused("it draws random numbers", "export the network for inference (eval mode)")
    if not computed and step.proto.domain in STANDARD and not _has_graph(step) and kind != "DequantizeLinear":
        _move_grid(step, build)
        return evaluate(step, step.values)
    if kind in HANDLERS:
        return HANDLERS[kind](step, build)
    if kind in HOST:
        return at_host(step, build)
    raise Refused(*advice(kind))


def _move_grid(step: FileNode, build: Builder):
    """Scales and zero points of a constant move as the constant itself does."""
    grid = build.grids.get(step.names[0]) if step.names else None
    if grid is not None and step.kind in ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Flatten"):
        parts = (evaluate(step, (np.ascontiguousarray(part), *step.values[1:]))[0]
                 for part in (grid.scale, grid.zero_point))
        build.grids[step.outputs[0]] = replace(grid, **dict(zip(("scale", "zero_point"), parts, strict=True)))


def _has_graph(step: FileNode) -> bool:
    return any(attribute.type in GRAPHS for attribute in step.proto.attribute)


def _guessed(value: Value) -> bool:
    return isinstance(value, View) and value.source.guessed


def _guesses(step: FileNode, build: Builder) -> list[Value]:
    """Results of a refused node, as if the network began there, so that later nodes are looked at, too.

    Their shapes are those that ONNX infers. Where it cannot, later nodes have no reason of their own.
    """
    if not any(isinstance(value, View) for value in step.values):
        return [UnknownValue() for _ in step.outputs]
    found = []
    for shape in inferred(step):
        known = shape and 0 < np.prod(shape, dtype=np.int64) <= LIMIT
        numbers = np.arange(np.prod(shape), dtype=np.int32).reshape(shape) if known else None
        found.append(View(numbers=numbers, source=ViewSource(
            name=build.placeholder(step), form=SampleForm.OPEN, order=numbers,
            guessed=True)) if known else UnknownValue())
    return found
