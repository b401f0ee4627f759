"""Whether a machine can run a model: the reasons why it cannot, layer by layer, each with a remedy."""

from collections.abc import Callable, Mapping

from concord.compiler.cells.registry import RECURRENT
from concord.compiler.graph.network import Network
from concord.compiler.graph.wiring import IMAGES, has_images, wired
from concord.compiler.lib import limits
from concord.compiler.lib.neighbours import ALONE, Neighbours
from concord.compiler.lib.reason import Reason
from concord.compiler.lib.received import Received
from concord.net.layers.add import Add
from concord.net.layers.average import Average, BlockAverage
from concord.net.layers.concat import Concat, SequenceConcat
from concord.net.layers.convolution import BlockConv, Conv
from concord.net.layers.dense import BlockDense, Dense
from concord.net.layers.layer import Layer
from concord.net.layers.pool import MaxPool
from concord.net.layers.recurrent import BlockRecurrent, IntegerRecurrent
from concord.net.layers.sequences import ImageToSequence, SequenceToImage
from concord.net.layers.softmax import Softmax
from concord.net.model import Model
from concord.spec.machine.config import Config

#: Why a machine cannot run a layer, for each class that it can run: of the layer, and in words, without images.
Limits = Callable[[Layer, Config, bool], list[Reason]]
_UNKNOWN = "there is no such layer on this machine: use other layers, or run it on the host"
_SEQUENCES = (
    "the machine keeps no whole sequences, which a layer behind two directions needs: use one recurrent layer in both "
    "directions, fix the number of time steps by a SequenceToImage and an ImageToSequence in front, or run it on the "
    "host")


def problems(model: Model, config: Config, neighbours: Neighbours = ALONE) -> list[Reason]:
    """Each reason why a machine cannot run a model, layer by layer; empty if it can."""
    found = _problems(model, config, neighbours)
    return [reason.of(f"layer {layer.name!r} ({layer.title})")
            for layer in model.layers for reason in found.get(layer.name, [])]


def of_layer(layer: Layer, config: Config, *, images: bool) -> list[Reason]:
    """Each reason why a machine cannot run a layer, wherever it stands in a network with or without images."""
    if type(layer) not in LIMITS:
        return [Reason(sentence=_UNKNOWN)]
    return LIMITS[type(layer)](layer, config, images)


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
    wiring = wired(model, neighbours)
    return wiring.problems or Network(wiring, config, neighbours=neighbours).problems


def _directions(model: Model, layer: Layer) -> list[Reason]:
    """Check directions: recurrent layers share one loop, so each begins at the same end as the layers it reads."""
    made = {one.name: one for one in model.layers if one.sequence}
    others = [name for name in model.sources_of(layer) if name in made and made[name].reverse != layer.reverse]
    if not layer.sequence or not others:
        return []
    reason = f"it reads {others[0]!r}, which begins at the other end of a sequence, and the machine keeps no whole ones"
    return [Reason(sentence=f"{reason}: let both begin at one end, or run it on the host")]


def _product(layer: Layer, config: Config, images: bool) -> list[Reason]:
    if isinstance(layer, Dense | Conv):
        found = limits.integer_operands(layer, config, [layer.weights]) + limits.start_values(layer.start, config)
    else:
        found = limits.block_operands(layer, config)
    if not images:
        found += [] if isinstance(layer, Dense) else limits.adjacent_blocks(layer)
        return found + limits.columns(config, config.vectors_of(layer.inputs)) + limits.product_rows(
            config, layer.outputs)
    if config.accumulator_rows < config.native_dim:
        found.insert(0, limits.accumulator_rows(config, config.native_dim, f"a native vector of {config.native_dim}"))
    return found


def _vector(layer: Layer, config: Config, images: bool) -> list[Reason]:
    return [] if images else limits.vector_rows(layer.outputs)


def _parts(layer: Concat, config: Config, images: bool) -> list[Reason]:
    lanes = config.mfu_lanes
    ragged = [
        Reason(sentence=f"its part of {size} elements is no whole number of words of {lanes}, so the next part "
                        f"would begin inside a word: give that part a multiple of {lanes} elements, or put it last")
        for size in layer.sizes[:-1] if size % lanes]
    return [] if images else ragged + limits.vector_rows(max(layer.sizes))


def _recurrent(layer: Layer, config: Config, images: bool) -> list[Reason]:
    return RECURRENT[type(layer)].problems(layer, config)


def _sequences(layer: Layer, config: Config, images: bool) -> list[Reason]:
    return [] if images else [Reason(sentence=_SEQUENCES)]


def _anywhere(layer: Layer, config: Config, images: bool) -> list[Reason]:
    return []


#: Every class of layers that a machine can run.
LIMITS: dict[type[Layer], Limits] = {
    **dict.fromkeys((Dense, BlockDense, Conv, BlockConv, Average, BlockAverage), _product),
    **dict.fromkeys((IntegerRecurrent, BlockRecurrent), _recurrent),
    **dict.fromkeys((MaxPool, ImageToSequence, SequenceToImage), _anywhere),
    **dict.fromkeys((Add, Received), _vector),
    Concat: _parts,
    SequenceConcat: _sequences,
    Softmax: lambda layer, config, images: limits.softmax(config, layer.inputs),
}
