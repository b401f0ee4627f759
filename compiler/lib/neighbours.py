"""How the machine of a part of a network exchanges tensors: with the host, or with the machines beside it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbours:
    """The machines beside the one that runs a part of a network.

    Between machines, a vector takes whole words, without the zeros that fill a native vector; an image comes pixel by
    pixel, and a sequence time step by time step. A message may hold many pixels.

    Attributes:
        before: Whether another machine sends the input; otherwise the host does.
        steps:  Whether the machine behind takes the result of every time step.
        sends:  Names of the layers whose results it takes, if there are several; `Compiled.sent` has their order.
        whole:  Whether the machine behind takes an image in messages of many pixels, which wait in a vector memory.
        images: Whether the whole network has images, so that all of its tensors are images.
        shape:  Channels, rows and columns of the input in such a network; None for those that the layers name.
    """

    before: bool = False
    steps: bool = False
    sends: tuple[str, ...] = ()
    whole: bool = False
    images: bool = False
    shape: tuple[int, int, int] | None = None


ALONE = Neighbours()  #: The machine runs a whole network.
