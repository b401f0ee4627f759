"""A tensor that comes from the machine before, where several of them do."""

from dataclasses import dataclass

from concord.net.layers.layer import Layer
from concord.net.model import Model


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Received(Layer):
    """Stands in a part of a network for a layer of another part, whose result comes through NetQ.

    Attributes:
        name:    Name of that layer.
        outputs: Number of elements of its result.
        shape:   Channels, rows and columns of the result in a network with images; None in others.
    """

    name: str
    outputs: int
    shape: tuple[int, int, int] | None = None

    title = "tensor of the machine before"
    takes = None


def entering(model: Model) -> list[int]:
    """Number of elements of each tensor that enters a part of a network: its input, or what `Received` stands for."""
    return [layer.outputs for layer in model.layers if isinstance(layer, Received)] or [model.inputs]
