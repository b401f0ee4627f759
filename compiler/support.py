"""What a machine can run: the kind of every class of layers, and why a model cannot run, layer by layer.

A new layer is one class in `compiler/kinds/`, and one row in `KINDS`.
"""

from collections.abc import Mapping

from concord.compiler.emit.chains import OpenChain
from concord.compiler.emit.sources import FromSlot
from concord.compiler.graph.network import PlannedNetwork
from concord.compiler.graph.nodes import CompiledKind, PlannedNode
from concord.compiler.graph.wiring import IMAGES, Wires, has_images, wired
from concord.compiler.kinds.attention import AttentionKind
from concord.compiler.kinds.curves import ClippedKind, CurveKind, GatedKind, GeluKind, LeakyKind, LimitedKind
from concord.compiler.kinds.positions import ConstantKind, OffsetsKind
from concord.compiler.kinds.product import (
    BlockAverageKind,
    BlockResultKind,
    IntegerProductKind,
    ProductKind,
    ResultKind,
)
from concord.compiler.kinds.recurrent import HiddenImageKind, RecurrentKind
from concord.compiler.kinds.reductions import SoftmaxInsideKind, VectorNormKind
from concord.compiler.kinds.weightless import ConcatenationKind, EnlargementKind, PoolKind, SumKind
from concord.compiler.lib import limits
from concord.compiler.lib.limits import Reason
from concord.compiler.lib.neighbours import ALONE, Neighbours, Received
from concord.compiler.lib.program import NET
from concord.compiler.plan.planner import Planner
from concord.net.layers.attention import BlockAttention
from concord.net.layers.convolution import BlockConv, Conv
from concord.net.layers.curves import ClippedLine, Curve, Leaky, Limited, TanhGelu
from concord.net.layers.dense import BlockDense, Dense
from concord.net.layers.enlarging import Enlarge
from concord.net.layers.joins import Add, Concat, GatedChannels, Multiply, SequenceConcat, Softmax
from concord.net.layers.layer import Layer
from concord.net.layers.pooling import Average, BlockAverage, BlockQuantizedResult, MaxPool, QuantizedResult
from concord.net.layers.positions import ConstantPositions, PixelOffsets
from concord.net.layers.recurrent import BlockRecurrent, IntegerRecurrent
from concord.net.layers.reductions import VectorNorm, VectorSoftmax
from concord.net.layers.sequences import ImageToSequence, SequenceToImage
from concord.net.model import Model
from concord.spec.machine.config import Config
from concord.spec.numbers.activation import Activation


class InputKind(CompiledKind):
    """The network's input, or a tensor of the machine before; a loop over time steps takes the steps of a sequence."""

    def follow(self, wires: Wires, layer, sources):
        wires.add(layer, ())

    def limits(self, layer, config, *, images):
        return [] if images else limits.vector_rows(layer.outputs)

    def plan(self, planner: Planner, node: PlannedNode):
        if not planner.demands.network.steps:
            planner.begin(node, OpenChain(source=FromSlot(slot=NET)))


class StepsKind(CompiledKind):
    """An image that is read as a sequence, by a loop over time steps."""

    def follow(self, wires: Wires, layer, sources):
        wires.entries[layer.name] = wires.image(layer, sources[0]), layer


class SequencesKind(CompiledKind):
    """A concatenation of sequences, which stands for one of images in a network that has them."""

    def follow(self, wires: Wires, layer, sources):
        wires.joined[layer.name] = layer

    def limits(self, layer, config, *, images):
        return [] if images else [Reason(sentence=(
            "the machine keeps no whole sequences, which a layer after two directions needs: use one recurrent layer "
            "in both directions, give data whose sequences all have one length, or run it on the host"))]


class SoftmaxKind(CompiledKind):
    """The softmax of the result, which the planner puts into the chain that sends it."""

    def limits(self, layer, config, *, images):
        return limits.softmax(config, layer.inputs)


class UnknownKind(CompiledKind):
    """A layer that no machine runs."""

    def limits(self, layer, config, *, images):
        return [Reason(sentence="there is no such layer on this machine: use other layers, or run it on the host")]


_INPUT, _UNKNOWN = InputKind(), UnknownKind()
#: Every class of layers that a machine can run.
KINDS: dict[type[Layer], CompiledKind] = {
    **dict.fromkeys((Dense, Conv, Average), IntegerProductKind()),
    **dict.fromkeys((BlockDense, BlockConv), ProductKind()),
    BlockAverage: BlockAverageKind(),
    **dict.fromkeys((IntegerRecurrent, BlockRecurrent), RecurrentKind()),
    QuantizedResult: ResultKind(),
    BlockQuantizedResult: BlockResultKind(),
    MaxPool: PoolKind(),
    Enlarge: EnlargementKind(),
    ImageToSequence: StepsKind(),
    SequenceToImage: HiddenImageKind(),
    **dict.fromkeys((Add, Multiply), SumKind()),
    Curve: CurveKind(),
    Leaky: LeakyKind(),
    ClippedLine: ClippedKind(),
    Limited: LimitedKind(),
    TanhGelu: GeluKind(),
    VectorSoftmax: SoftmaxInsideKind(),
    VectorNorm: VectorNormKind(),
    BlockAttention: AttentionKind(),
    PixelOffsets: OffsetsKind(),
    ConstantPositions: ConstantKind(),
    GatedChannels: GatedKind(),
    Concat: ConcatenationKind(),
    SequenceConcat: SequencesKind(),
    Softmax: SoftmaxKind(),
    Received: _INPUT,
}


def kind_of(layer: Layer | None) -> CompiledKind:
    """The kind of a layer; None is the network's input."""
    return _INPUT if layer is None else KINDS.get(type(layer), _UNKNOWN)


def problems(model: Model, config: Config, neighbours: Neighbours = ALONE) -> list[Reason]:
    """Each reason why a machine cannot run a model, layer by layer; empty if it can."""
    found = _problems(model, config, neighbours)
    return [reason.of(f"layer {layer.name!r} ({layer.title})")
            for layer in model.layers for reason in found.get(layer.name, [])]


def of_layer(layer: Layer, config: Config, *, images: bool) -> list[Reason]:
    """Each reason why a machine cannot run a layer, wherever it stands in a network with or without images."""
    function = getattr(layer, "activation", Activation.NONE)
    return kind_of(layer).limits(layer, config, images=images) + limits.activation(config, function)


def _problems(model: Model, config: Config, neighbours: Neighbours) -> Mapping[str, list[Reason]]:
    """The reasons by the name of the layer."""
    images = has_images(model, neighbours)
    if images and not config.vector_rf:
        reason = Reason(
            sentence="the machine has no VectorRf, which images need: choose a preset that has one, such as vision",
            attribute="vector_rf", needed=config.tile_engines, available=0)
        return {layer.name: [reason] for layer in model.layers if isinstance(layer, IMAGES)}
    found = {layer.name: of_layer(layer, config, images=images) for layer in model.layers}
    if not images:
        found = {layer.name: found[layer.name] + _directions(model, layer) for layer in model.layers}
    if any(found.values()):
        return found
    wiring = wired(model, kind_of, neighbours)
    return wiring.problems or PlannedNetwork(wiring, config, neighbours=neighbours).problems


def _directions(model: Model, layer: Layer) -> list[Reason]:
    """Check directions: recurrent layers share one loop, so each begins at the same end as the layers it reads."""
    made = {one.name: one for one in model.layers if one.sequence}
    others = [name for name in model.sources_of(layer) if name in made and made[name].reverse != layer.reverse]
    if not layer.sequence or not others:
        return []
    reason = f"it reads {others[0]!r}, which begins at the other end of a sequence, and the machine keeps no whole ones"
    return [Reason(sentence=f"{reason}: let both begin at one end, or run it on the host")]
