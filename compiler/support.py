"""What a machine can compute of a model: every layer that it cannot, with the reason and what to do."""

from concord.compiler.layers import registry
from concord.model.layers.layer import Layer
from concord.model.model import Model
from concord.spec.config import Config


def problems(model: Model, config: Config) -> list[str]:
    """A sentence for each thing in the way, layer by layer; none where the model can be compiled."""
    return [
        f"layer {layer.name!r} ({layer.title}): {reason}"
        for layer in model.layers
        for reason in registry.problems(layer, config) + _directions(model, layer)
    ]


def _directions(model: Model, layer: Layer) -> list[str]:
    """Recurrent layers run in one loop, so that each must begin at the same end of a sequence as those it reads."""
    made = {one.name: one for one in model.layers if one.sequence}
    others = [name for name in model.sources_of(layer) if name in made and made[name].reverse != layer.reverse]
    if not layer.sequence or not others:
        return []
    reason = f"it reads {others[0]!r}, which begins at the other end of a sequence, and the machine keeps no whole ones"
    return [f"{reason}: let both begin at one end, or run it on the host"]
