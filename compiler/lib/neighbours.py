"""A part of a network, and how its machine exchanges tensors: with the host, or with the machines beside it."""

from collections.abc import Sequence
from dataclasses import dataclass

from concord.net.layers.layer import Layer
from concord.net.model import Model


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbours:
    """The machines beside the one that runs a part of a network.

    Between machines, a vector takes whole words, without the zeros that fill a native vector; an image comes pixel by
    pixel, and a sequence time step by time step. A message may hold many pixels.

    Attributes:
        before: Whether another machine sends the input; otherwise the host does.
        behind: Whether another machine takes the result; otherwise the host does.
        steps:  Whether the next machine takes the result of every time step.
        sends:  Names of the layers whose results it takes, if there are several; `Compiled.sent` has their order.
        whole:  Whether the next machine takes an image in messages of many pixels, which wait in a vector memory.
        images: Whether the whole network has images, so that all of its tensors are images.
        shape:  Channels, rows and columns of the input in such a network; None for those that the layers name.
    """

    before: bool = False
    behind: bool = False
    steps: bool = False
    sends: tuple[str, ...] = ()
    whole: bool = False
    images: bool = False
    shape: tuple[int, int, int] | None = None


ALONE = Neighbours()  #: The machine runs a whole network.


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


def needed(model: Model, results: Sequence[str] = ()) -> list[Layer]:
    """The layers that lead to the results of these layers, by default to that of the last one, and these layers."""
    found = set(results) or {model.layers[-1].name}
    for layer in reversed(model.layers):
        if layer.name in found:
            found.update(model.sources_of(layer))
    return [layer for layer in model.layers if layer.name in found]
