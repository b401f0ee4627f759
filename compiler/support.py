"""What a machine can compute of a model: every layer that it cannot, with the reason and what to do."""

from concord.compiler.layers import registry
from concord.model.model import Model
from concord.spec.config import Config


def problems(model: Model, config: Config) -> list[str]:
    """A sentence for each thing in the way, layer by layer; none where the model can be compiled."""
    return [
        f"layer {layer.name!r} ({layer.title}): {reason}"
        for layer in model.layers
        for reason in registry.problems(layer, config)
    ]
