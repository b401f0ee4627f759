"""The layers of a network that count."""

from collections.abc import Sequence

from concord.net.layers.layer import Layer
from concord.net.model import Model


def needed(model: Model, results: Sequence[str] = ()) -> list[Layer]:
    """The layers that lead to the results of these layers, by default to that of the last one, and these layers."""
    found = set(results) or {model.layers[-1].name}
    for layer in reversed(model.layers):
        if layer.name in found:
            found.update(model.sources_of(layer))
    return [layer for layer in model.layers if layer.name in found]
