"""Whether a machine can run a model: the reasons why it cannot, layer by layer, each with a remedy."""

from concord.compiler.images import support as images
from concord.compiler.layers import registry
from concord.compiler.lib.neighbours import ALONE, Neighbours
from concord.compiler.lib.reason import Reason
from concord.model.layers.layer import Layer
from concord.model.model import Model
from concord.spec.config import Config


def problems(model: Model, config: Config, neighbours: Neighbours = ALONE) -> list[Reason]:
    """Each reason why a machine cannot run a model, layer by layer; empty if it can."""
    with_images = neighbours.images or images.has_images(model)
    of_images = images.problems(model, config, neighbours) if with_images else None
    return [
        reason.of(f"layer {layer.name!r} ({layer.title})")
        for layer in model.layers
        for reason in (registry.problems(layer, config) + _directions(model, layer) if of_images is None
                       else of_images.get(layer.name, []))
    ]


def _directions(model: Model, layer: Layer) -> list[Reason]:
    """Check directions: recurrent layers share one loop, so each begins at the same end as the layers it reads."""
    made = {one.name: one for one in model.layers if one.sequence}
    others = [name for name in model.sources_of(layer) if name in made and made[name].reverse != layer.reverse]
    if not layer.sequence or not others:
        return []
    reason = f"it reads {others[0]!r}, which begins at the other end of a sequence, and the machine keeps no whole ones"
    return [Reason(sentence=f"{reason}: let both begin at one end, or run it on the host")]
