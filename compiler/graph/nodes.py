"""Nodes of a network, and what the compiler asks the kind of a node's layer.

Each kind of layers is a class in `compiler/kinds/`, which answers all of this; `compiler/support.py` lists them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from concord.compiler.graph.values import Value
from concord.compiler.lib.limits import Reason
from concord.net.layers.layer import Layer
from concord.spec.isa.operations import Stage, next_mfu, position
from concord.spec.machine.config import Config
from concord.spec.numbers.activation import Activation


class Kind:
    """What the compiler knows of a kind of layers; by default, of one that disappears before chains are made."""

    def limits(self, layer: Layer, config: Config, *, images: bool) -> list[Reason]:
        """Each reason why a machine cannot run a layer, wherever it stands in a network with or without images."""
        return []

    def made(self, network, layer: Layer, sources: tuple[Value, ...]) -> Value:
        """The tensor that a layer makes; `graph.network.Network` collects what does not fit the machine."""
        return network.new(layer)

    def objections(self, network, layer: Layer, source: Value) -> Iterable[str]:
        """Sentences on why a layer cannot read a tensor as the machine stores it."""
        return ()

    def time(self, network, node: "Node") -> tuple[int, ...]:
        """When the tensor of a node is computed; times of nodes are compared."""
        return (network.nodes.index(node),)

    def computed(self, network, node: "Node") -> int:
        """Position of the stage that computes a tensor before its activation function; -1 where it needs no stage.

        The planner has not made the chains yet when this is asked.
        """
        return -1

    def last(self, network, node: "Node") -> int:
        """Position of the last stage of the chain that computes a tensor."""
        found = self.computed(network, node)
        if node.activation is Activation.NONE:
            return found
        return position(Stage.ACT, next_mfu(Stage.ACT, found))

    def minus_zero(self, network, node: "Node") -> bool:
        """Whether a tensor may hold -0."""
        return True

    def demand(self, demands, node: "Node"):
        """Tell `plan.demands.Demands` what a layer needs from its sources."""
        raise NotImplementedError

    def plan(self, planner, node: "Node"):
        """Let `plan.planner.Planner` begin the pass of a layer, if it has one of its own."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Node:
    """A layer and the tensors around it.

    Attributes:
        layer:   The layer; None for the network's input.
        kind:    What the compiler knows of layers of this class.
        sources: Tensors that enter.
        value:   Tensor that the layer makes.
    """

    layer: Layer | None
    kind: Kind
    sources: tuple[Value, ...]
    value: Value

    @property
    def name(self) -> str:
        return self.value.name

    @property
    def activation(self) -> Activation:
        """The activation function of the result."""
        return getattr(self.layer, "activation", Activation.NONE)
