"""Post-training quantisation of a float network: calibration, and the layers of the quantised model."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from concord.golden.lib.float16 import to_bits
from concord.lib.progress import Show, silent
from concord.net.graph import INPUT, Graph, Node
from concord.net.layers.curves import ClippedLine, Curve, Leaky, Limited, TanhGelu
from concord.net.layers.enlarging import Enlarge
from concord.net.layers.joins import Add, Concat, GatedChannels, Multiply, SequenceConcat
from concord.net.layers.layer import Layer
from concord.net.layers.pooling import MaxPool
from concord.net.layers.positions import ConstantPositions, PixelOffsets
from concord.net.layers.reductions import VectorNorm, VectorSoftmax
from concord.net.layers.sequences import ImageToSequence, SequenceToImage
from concord.net.ops.attention import Attention
from concord.net.ops.joins import Addition, ChannelGating, Concatenation, Multiplication
from concord.net.ops.operator import Operator
from concord.net.ops.pointwise import Gelu, HardSigmoid, LeakyRelu, Limits, Pointwise
from concord.net.ops.pooling import MaxPooling, ProductResult
from concord.net.ops.recurrent import Recurrence
from concord.net.ops.reduction import FeatureNorm, SoftmaxInside
from concord.net.ops.reshape import Enlarging, Tokens
from concord.net.ops.scale import Offsets
from concord.net.ops.sequences import Last, ToImage, ToSequence
from concord.net.quantize.blocks import Blocks
from concord.net.quantize.choices import Choices
from concord.net.quantize.integers import Integers
from concord.net.quantize.node_results import results
from concord.net.quantize.plan import QUANTIZED, Part, Plan, plan
from concord.net.quantize.recipe import Gates
from concord.net.quantize.reconstructed import Reconstructed
from concord.net.quantize.watched import WatchedRecurrence

#: Operators with quantisers of what enters them.
CALIBRATED = (*QUANTIZED, Recurrence)
#: Operators whose layers have quantisers.
LOWERED = (*QUANTIZED, Attention)
#: Results below this are told apart by fewer than 4 bits of binary16.
SMALLEST_RESULT = 2.0**-20


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Quantized:
    """A network after post-training quantisation.

    Attributes:
        layers:  Layers of the model, in order.
        sources: Names of what enters a layer (or INPUT), where this is not just the layer before it.
        graph:   The float network with the numbers that its integers or blocks stand for, and its quantisers.
    """

    layers: tuple[Layer, ...]
    sources: Mapping[str, tuple[str, ...]]
    graph: Graph


def prepared(
    network: Graph, choices: Choices, steps: int | None = None, *, machine: bool = True, scales_apart: bool = False
) -> Integers | Blocks:
    """A network whose layers can be quantised as the choices say.

    Args:
        network:      The float network.
        choices:      How it is quantised.
        steps:        Number of time steps of all inputs; None if it is not fixed, or if inputs are no sequences.
        machine:      Whether integers must be operands of a machine; otherwise numbers may stay in FP32.
        scales_apart: Whether scales of the network's input stay apart in integers, see `plan`.

    Raises:
        Unsupported: an operation of the network cannot be quantised.
        ValueError: a method cannot do a width, the choices name a layer that is not there, or are for another kind of
            network.
    """
    made = plan(network, steps, scales_apart=scales_apart and not choices.blocks, results=choices.recipe.results,
                integers=not choices.blocks)
    choices = choices.with_results([part.name for part in made.parts if isinstance(part.op, ProductResult)])
    recipe = choices.recipe
    if not made.graph.has(Recurrence) and choices.gates != Gates():
        raise ValueError("--asymmetric, --shared, --gate-bits, --gate-form and --bias-bits are for recurrent networks: "
                         "leave them out")
    for part in (part for part in made.parts if choices.blocks and isinstance(part.op, Recurrence)):
        bits, inputs = recipe.results.of(part.name), recipe.formats(part.name)[1].bits
        if bits not in (None, inputs):
            raise ValueError(f"layer {part.name!r}: results of recurrent layers in block floating point have the "
                             f"{inputs} bits of its inputs, not {bits}: give --output-layer {part.name}={inputs}")
    names = [part.name for part in made.parts if isinstance(part.op, QUANTIZED)]
    if unknown := set(recipe.bits) - set(names):
        raise ValueError(f"there is no layer {min(unknown)!r} to give bits to; the network has {', '.join(names)}")
    if choices.blocks:
        return Blocks(made, choices)
    return (Reconstructed if choices.reconstruct else Integers)(made, choices, machine=machine)


def quantized(
    arithmetic: Integers | Blocks, x: np.ndarray, lengths: np.ndarray | None = None, progress: Show = silent
) -> Quantized:
    """Quantise a network by its calibration set. Arguments and errors are those of `calibrate`."""
    calibrate(arithmetic, x, lengths, progress)
    made = arithmetic.plan
    layers, sources = model_layers(arithmetic)
    by_node = {part.node: part for part in made.parts if isinstance(part.op, (*CALIBRATED, Attention))}
    simulated = tuple(replace(node, op=arithmetic.simulated(by_node[node.name])) if node.name in by_node else node
                      for node in made.graph.nodes)
    return Quantized(layers=layers, sources=sources, graph=replace(made.graph, nodes=simulated))


def calibrate(
    arithmetic: Integers | Blocks, x: np.ndarray, lengths: np.ndarray | None = None, progress: Show = silent
):
    """Find the numbers of all layers by a calibration set.

    Args:
        arithmetic: What `prepared` gives.
        x:          float32[samples, *shape], or [samples, time, *shape], the calibration set.
        lengths:    int[samples], time steps of each sample; all time steps by default.
        progress:   Shows each layer that has been quantised.

    Raises:
        ValueError: a method cannot do a width, or a number leaves the range of binary16.
    """
    calibrated = {part.node: part for part in arithmetic.plan.parts if isinstance(part.op, CALIBRATED)}
    graph, said = arithmetic.plan.graph, []

    def say(part: Part, lost: str):
        said.append(part)
        progress("PTQ", len(said), len(calibrated), f"{part.name}: {lost}")

    def watched(node: Node, _: list[np.ndarray]) -> Operator:
        """The operator of a node; a recurrent layer notes what its gates give, where their codes follow from that."""
        if not (arithmetic.gates.measured and node.name in calibrated and isinstance(node.op, Recurrence)):
            return node.op
        return arithmetic.watched.setdefault(node.name, WatchedRecurrence.of(node.op))

    exact = results(graph, x, lengths, watched)
    if isinstance(arithmetic, Reconstructed):
        deque(results(graph, x, lengths, arithmetic.operator(calibrated, lambda: next(exact)[2], say)), maxlen=0)
    for node, inputs, result in exact:
        if node.name in calibrated:
            part = calibrated[node.name]
            say(part, arithmetic.take(part, inputs[0], result))
        elif isinstance(node.op, FeatureNorm) and (sentence := _too_wide(arithmetic.plan, node, inputs[0])):
            progress("PTQ", len(said), len(calibrated), sentence)
        if node is graph.output:
            _check_told_apart(node, result)
    arithmetic.join()


def _check_told_apart(node: Node, results: np.ndarray):
    """Refuse a network whose results are so small that binary16 tells few of them apart.

    Raises:
        ValueError: it is such a network.
    """
    largest, step = float(np.abs(results).max(initial=0)), float(np.finfo(np.float16).smallest_subnormal)
    if 0 < largest < SMALLEST_RESULT:
        raise ValueError(f"{node.name}: the network's results are {largest:.2g} at most, and binary16 has steps of "
                         f"{step:.1g} there: multiply its last layer, and the targets, by a factor")


def _too_wide(made: Plan, node: Node, x: np.ndarray) -> str:
    """What happens to a normalisation whose sum of squares overflows on the machine for a calibration set, or nothing.

    Args:
        x: float32[samples, ...], what enters it.
    """
    part = next(part for part in made.parts if part.node == node.name)
    found, widest = node.op.spread(x), _plain(part, made).widest
    if found <= widest:
        return ""
    factor = 1 << int(np.ceil(np.log2(found / widest)))
    return (f"{part.name}: its vectors spread by {found:.4g}, and from {widest:.4g} on their squares overflow, which "
            f"leaves its bias alone: divide what enters it by {factor} in the network, which changes no result of it")


def model_layers(arithmetic: Integers | Blocks) -> tuple[tuple[Layer, ...], dict[str, tuple[str, ...]]]:
    """The layers of the quantised model, and the sources of those that do not just read the layer before them."""
    return _Model(arithmetic.plan).of(arithmetic)


class _Model:
    """The layers of a model with their sources, made part by part."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.layers: list[tuple[Layer, tuple[str, ...]]] = []
        self.named = {INPUT: INPUT}  # the layer that gives the result of a part

    def of(self, arithmetic: Integers | Blocks) -> tuple[tuple[Layer, ...], dict[str, tuple[str, ...]]]:
        """All layers, and the sources of those that do not just read the layer before them."""
        for part in self.plan.parts:
            sources = tuple(self.named[name] for name in part.sources)
            if isinstance(part.op, Recurrence):
                self._recurrent(part, arithmetic.layers(part), sources)
            elif isinstance(part.op, Last):
                self._last(part)
            else:
                layer = arithmetic.layers(part)[0] if isinstance(part.op, LOWERED) else _plain(part, self.plan)
                self._add(part, layer, sources)
        names = [INPUT, *(layer.name for layer, _ in self.layers)]
        return tuple(layer for layer, _ in self.layers), {
            layer.name: sources for (layer, sources), before in zip(self.layers, names, strict=False)
            if sources != (before,)}

    def _add(self, part: Part, layer: Layer, sources: tuple[str, ...]):
        self.layers.append((layer, sources))
        self.named[part.name] = layer.name

    def _recurrent(self, part: Part, layers: Sequence[Layer], sources: tuple[str, ...]):
        """One direction, or two and their joined sequence, if a layer reads it."""
        for index, layer in enumerate(layers):
            name = f"{part.name}-reverse" if index else part.name
            self._add(part, replace(layer, name=name, reverse=part.op.reverse or bool(index)), sources)
        if len(layers) == 2 and self._sequence_read(part):
            self._add(part, SequenceConcat(name=f"{part.name}-both", sizes=tuple(layer.outputs for layer in layers)),
                      (part.name, f"{part.name}-reverse"))

    def _last(self, part: Part):
        """The last hidden vectors of both directions."""
        (source,) = part.sources
        both = self.plan.node(source)
        name = f"{source}-last" if self._sequence_read(both) else f"{source}-both"
        self._add(part, Concat(name=name, sizes=(both.op.hidden,) * 2), (source, f"{source}-reverse"))

    def _sequence_read(self, part: Part) -> bool:
        return any(not isinstance(user.op, Last) for user in self.plan.readers(part.name))


def _plain(part: Part, plan: Plan) -> Layer:
    """The layer of a part without numbers."""
    op, shape = part.op, part.shapes[0]
    match op:
        case MaxPooling():
            window = op.window
            return MaxPool(name=part.name, shape=shape, size=window.size, stride=window.stride,
                           padding=window.padding, dilation=window.dilation, activation=part.activation)
        case Enlarging():
            return Enlarge(name=part.name, shape=shape, factor=op.factor, shuffled=op.shuffled,
                           activation=part.activation)
        case Addition():
            return Add(name=part.name, inputs=prod(shape), activation=part.activation)
        case Multiplication():
            return Multiply(name=part.name, inputs=prod(shape), activation=part.activation)
        case ChannelGating():
            return GatedChannels(name=part.name, image=shape, activation=part.activation)
        case LeakyRelu():
            return Leaky(name=part.name, inputs=prod(shape), slope=op.slope)
        case HardSigmoid():
            return ClippedLine(name=part.name, inputs=prod(shape), shift=op.beta / op.alpha, slope=op.alpha,
                           ceiling=op.ceiling)
        case Limits():
            return Limited(name=part.name, inputs=prod(shape), lowest=op.lowest, highest=op.highest)
        case Gelu():
            return TanhGelu(name=part.name, inputs=prod(shape), line=op.factors[0], cube=op.factors[1])
        case SoftmaxInside():
            return VectorSoftmax(name=part.name, inputs=prod(shape), pixels=prod(shape[1:]))
        case FeatureNorm():
            return VectorNorm(name=part.name, weight=to_bits(op.weight), bias=to_bits(op.bias), centred=op.centred,
                              epsilon=op.epsilon, pixels=prod(shape[1:]))
        case Tokens():
            return ConstantPositions(name=part.name, shape=shape, tokens=to_bits(op.tokens))
        case Offsets():
            return PixelOffsets(name=part.name, offset=to_bits(op.offset))
        case Pointwise():
            return Curve(name=part.name, inputs=prod(shape), activation=part.activation)
        case Concatenation():
            sequence = plan.graph.types[part.node].sequence
            return (SequenceConcat if sequence else Concat)(name=part.name, sizes=tuple(map(prod, part.shapes)))
        case ToSequence():
            return ImageToSequence(name=part.name, shape=shape, time=op.time)
        case ToImage():
            return SequenceToImage(name=part.name, inputs=shape[0], steps=op.steps)
    raise TypeError(f"no layer computes {op.label}")
