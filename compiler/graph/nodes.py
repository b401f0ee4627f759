"""Nodes of a network, what the compiler asks the kind of a node's layer, and the tensors between nodes.

A tensor is an image of C channels, H rows and W columns; a vector is an image of one pixel. The machine stores it pixel
by pixel, and each pixel begins a native vector. `places` says in which lane of its pixel a channel lies: channels
follow each other, except that each part of a concatenation begins a native vector.

Each kind of layers is a class in `compiler/kinds/`, which answers all of this; `compiler/support.py` lists them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from concord.compiler.lib.limits import Reason
from concord.golden.lib import float16
from concord.net.arithmetic.native_vectors import adjacent
from concord.net.layers.layer import Layer
from concord.spec.isa.memories import Mem
from concord.spec.isa.operations import Stage, next_mfu, position
from concord.spec.machine.config import Config
from concord.spec.numbers.activation import Activation


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Value:
    """A tensor between layers.

    Attributes:
        name:   Name of the layer that makes it; empty for the network's input.
        shape:  Channels, rows and columns.
        places: int32[channels], the lane of each channel within its pixel.
        read:   Memory from which products read it: as entries of VectorRf, which hold its codes; or as words of a
            vector memory, whose quantiser makes the codes when a product reads them. Such a tensor has one pixel.
    """

    name: str
    shape: tuple[int, int, int]
    places: np.ndarray
    read: Mem = Mem.VECTOR_RF

    @classmethod
    def of(cls, name: str, shape: tuple[int, int, int], read: Mem = Mem.VECTOR_RF) -> "Value":
        """A tensor whose channels follow each other."""
        return cls(name=name, shape=tuple(shape), places=adjacent(shape[0]), read=read)

    @property
    def in_words(self) -> bool:
        """Whether products read words of a vector memory."""
        return self.read is not Mem.VECTOR_RF

    @property
    def adjacent(self) -> bool:
        """Whether the channels of a pixel follow each other."""
        return np.array_equal(self.places, adjacent(self.shape[0]))

    @property
    def elements(self) -> int:
        """Number of elements of the tensor."""
        return prod(self.shape)

    @property
    def pixels(self) -> int:
        """Number of pixels of the tensor."""
        return self.shape[1] * self.shape[2]

    @property
    def lanes(self) -> int:
        """Number of lanes of a pixel, from the first to the last one in use."""
        return int(self.places.max()) + 1

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Values [channels, ...] at the lanes [lanes, ...] of their channels; zero in the lanes between them."""
        lanes = np.zeros((self.lanes, *values.shape[1:]), values.dtype)
        lanes[self.places] = values
        return lanes


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TensorCodes:
    """How a quantiser makes codes, or blocks, of the numbers x of a tensor: from x * scale + offset.

    Attributes:
        integer:  Whether they are integer codes, rather than blocks.
        unsigned: Whether codes are clipped to 0..levels.
        scale:    uint16[channels], or None where nothing is multiplied.
        offset:   uint16[channels], or None where nothing is added.
        border:   uint16[channels], what stands for x * scale + offset around the image; None without padding.
        real:     float64[channels], the same before it is rounded, where the compiler fills memories with real numbers.
        clip:     float64[2], smallest and largest value where the quantiser is off and its clips stay; else None.
    """

    integer: bool
    unsigned: bool = False
    scale: np.ndarray | None = None
    offset: np.ndarray | None = None
    border: np.ndarray | None = None
    real: np.ndarray | None = None
    clip: np.ndarray | None = None

    def alike(self, other: "TensorCodes") -> bool:
        """Whether both make the same codes of an image; the padding does not count."""
        return (self.integer, self.unsigned) == (other.integer, other.unsigned) and self.scales_as(other)

    def scales_as(self, other: "TensorCodes") -> bool:
        """Whether both scale numbers in the same way."""
        return _same(self.scale, other.scale) and _same(self.offset, other.offset)

    def borders_agree(self, other: "TensorCodes") -> bool:
        """Whether one border serves both."""
        return self.border is None or other.border is None or _same(self.border, other.border)

    def with_border(self, border: np.ndarray | None, real: np.ndarray | None = None) -> "TensorCodes":
        """The same codes with another border, and what it is before it is rounded."""
        return replace(self, border=border, real=real)

    def part(self, channels: slice) -> "TensorCodes":
        """The codes of some channels."""
        cut = {name: None if getattr(self, name) is None else getattr(self, name)[channels]
               for name in PER_CHANNEL}
        return replace(self, **cut)

    def repeated(self, parts: int) -> "TensorCodes":
        """The codes of an image whose channels are those of several images of these codes."""
        return replace(self, **{name: None if getattr(self, name) is None else np.tile(getattr(self, name), parts)
                                for name in PER_CHANNEL})

    def of_channels(self, channels: int) -> "TensorCodes | None":
        """The codes of an image whose flattened elements have these codes; None if pixels of a channel differ."""
        cut = {"border": None, "real": None}
        for name in ("scale", "offset"):
            values = getattr(self, name)
            apart = None if values is None else values.reshape(channels, -1)
            if apart is not None and (apart != apart[:, :1]).any():
                return None
            cut[name] = None if apart is None else apart[:, 0]
        return replace(self, **cut)


#: The fields of `TensorCodes` that have a number for each channel.
PER_CHANNEL = ("scale", "offset", "border", "real")


def entered(border: int | float, scale: np.ndarray | None, offset: np.ndarray | None, channels: int) -> np.ndarray:
    """What a quantiser sees of padding.

    Returns:
        uint16[channels] for padding with the binary16 pattern `border`; float64[channels] for a real number.
    """
    if isinstance(border, float):
        scaled = np.full(channels, border) if scale is None else border * float16.to_real(scale)
        return scaled if offset is None else scaled + float16.to_real(offset)
    x = np.full(channels, border, np.uint16)
    x = x if scale is None else float16.mul(x, scale)
    return x if offset is None else float16.add(x, offset)


def _same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))


class CompiledKind:
    """What the compiler knows of a kind of layers; by default, of one that disappears before chains are made.

    Attributes:
        takes_turns: Whether passes of networks with such a layer take turns where there is room, see `plan.waves`.
    """

    takes_turns = False

    def limits(self, layer: Layer, config: Config, *, images: bool) -> list[Reason]:
        """Each reason why a machine cannot run a layer, wherever it stands in a network with or without images."""
        return []

    def follow(self, wires, layer: Layer, sources: tuple[str, ...]):
        """Tell `graph.wiring.Wires` what a layer of a network with images reads; by default, images."""
        wires.add(layer, tuple(wires.image(layer, name) for name in sources))

    def made(self, network, layer: Layer, sources: tuple[Value, ...]) -> Value:
        """The tensor that a layer makes; `graph.network.PlannedNetwork` collects what does not fit the machine."""
        return network.new(layer)

    def objections(self, network, layer: Layer, source: Value) -> Iterable[str]:
        """Sentences on why a layer cannot read a tensor as the machine stores it."""
        return ()

    def time(self, network, node: "PlannedNode") -> tuple[int, ...]:
        """When the tensor of a node is computed; times of nodes are compared."""
        return (network.nodes.index(node),)

    def computed(self, network, node: "PlannedNode") -> int:
        """Position of the stage that computes a tensor before its activation function; -1 where it needs no stage.

        The planner has not made the chains yet when this is asked.
        """
        return -1

    def last(self, network, node: "PlannedNode") -> int:
        """Position of the last stage of the chain that computes a tensor."""
        found = self.computed(network, node)
        if node.activation is Activation.NONE:
            return found
        return position(Stage.ACT, next_mfu(Stage.ACT, found))

    def minus_zero(self, network, node: "PlannedNode") -> bool:
        """Whether a tensor may hold -0."""
        return True

    def demand(self, demands, node: "PlannedNode"):
        """Tell `plan.demands.Demands` what a layer needs from its sources."""
        raise NotImplementedError

    def plan(self, planner, node: "PlannedNode"):
        """Let `plan.planner.Planner` begin the pass of a layer, if it has one of its own."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PlannedNode:
    """A layer and the tensors around it.

    Attributes:
        layer:   The layer; None for the network's input.
        kind:    What the compiler knows of layers of this class.
        sources: Tensors that enter.
        value:   Tensor that the layer makes.
    """

    layer: Layer | None
    kind: CompiledKind
    sources: tuple[Value, ...]
    value: Value

    @property
    def name(self) -> str:
        return self.value.name

    @property
    def activation(self) -> Activation:
        """The activation function of the result."""
        return getattr(self.layer, "activation", Activation.NONE)
