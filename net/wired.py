"""What graphs of any kind answer about their nodes: who reads a tensor, and what enters a node."""

from collections.abc import Callable
from typing import Generic, TypeVar

#: Name of a network's input among the sources of a node.
INPUT = ""

Item = TypeVar("Item")


class Wired(Generic[Item]):
    """A graph of nodes, each of which has a name, and sources by their names.

    Float networks (`net.graph.Graph`) and quantised ones (`net.model.Model`) inherit this; a class that does so has
    `nodes`, in an order in which each node comes after its sources, and `sources_of`.
    """

    __slots__ = ()

    nodes: tuple[Item, ...]

    def sources_of(self, node: Item) -> tuple[str, ...]:
        """Names of the nodes, or INPUT, whose results enter a node."""
        raise NotImplementedError

    def node(self, name: str) -> Item | None:
        """The node of a name; None for the input, and for a name that no node has."""
        return next((node for node in self.nodes if node.name == name), None)

    def source(self, node: Item) -> Item | None:
        """The node whose result enters a node first; None for the input."""
        return self.node(self.sources_of(node)[0])

    def readers(self, name: str, through: Callable[[Item], bool] | None = None) -> tuple[Item, ...]:
        """The nodes that read the result of a node, or the input.

        Args:
            name:    Name of the node, or INPUT.
            through: Function that says of a reader whether the nodes that read its result count instead of it.
        """
        found = []
        for node in self.nodes:
            if name in self.sources_of(node):
                found += self.readers(node.name, through) if through and through(node) else [node]
        return tuple(found)

    def uses(self, name: str) -> tuple[tuple[Item, int], ...]:
        """The nodes that read a result, each with the index at which it enters; one node may read it twice."""
        return tuple((node, index) for node in self.nodes
                     for index, source in enumerate(self.sources_of(node)) if source == name)

    def alone(self, node: Item) -> bool:
        """Whether a node has one source only, which nothing else reads."""
        sources = self.sources_of(node)
        return len(sources) == 1 and self.readers(sources[0]) == (node,)
