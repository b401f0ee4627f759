"""Whether a machine can run a model: the reasons why it cannot, layer by layer, each with a remedy."""

from collections.abc import Mapping

from concord.compiler.graph.network import Network
from concord.compiler.graph.wiring import IMAGES, has_images, wired
from concord.compiler.kinds.registry import kind_of
from concord.compiler.lib.neighbours import ALONE, Neighbours
from concord.compiler.lib.reason import Reason
from concord.net.layers.layer import Layer
from concord.net.model import Model
from concord.spec.machine.config import Config


def problems(model: Model, config: Config, neighbours: Neighbours = ALONE) -> list[Reason]:
    """Each reason why a machine cannot run a model, layer by layer; empty if it can."""
    found = _problems(model, config, neighbours)
    return [reason.of(f"layer {layer.name!r} ({layer.title})")
            for layer in model.layers for reason in found.get(layer.name, [])]


def of_layer(layer: Layer, config: Config, *, images: bool) -> list[Reason]:
    """Each reason why a machine cannot run a layer, wherever it stands in a network with or without images."""
    return kind_of(layer).limits(layer, config, images=images)


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
    return wiring.problems or Network(wiring, config, kind_of, neighbours=neighbours).problems


def _directions(model: Model, layer: Layer) -> list[Reason]:
    """Check directions: recurrent layers share one loop, so each begins at the same end as the layers it reads."""
    made = {one.name: one for one in model.layers if one.sequence}
    others = [name for name in model.sources_of(layer) if name in made and made[name].reverse != layer.reverse]
    if not layer.sequence or not others:
        return []
    reason = f"it reads {others[0]!r}, which begins at the other end of a sequence, and the machine keeps no whole ones"
    return [Reason(sentence=f"{reason}: let both begin at one end, or run it on the host")]
