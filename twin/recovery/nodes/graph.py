"""The nodes of a program as they are made, and what each value of its flow holds."""

import numpy as np
from concord.twin.flow.flow import Flow, Refs
from concord.twin.recovery.nodes.elements import Constants, refs
from concord.twin.recovery.nodes.nodes import Node
from concord.twin.recovery.nodes.quantizers import Quantizers
from concord.twin.recovery.nodes.unquantized import Clips, RealConstants


class Graph:
    """The nodes that have been made, region by region.

    Args:
        flow:        Data flow of the program.
        unquantised: Whether its numbers are those in full precision, and its quantisers are off.

    Attributes:
        constants:  The constants.
        nodes:      All nodes by index; None for the two nodes of constants.
        order:      Nodes of the region that is being lowered.
        content:    References of each value of the flow, element by element.
        shared:     Quantised nodes of the region.
        quantisers: Makes the nodes of quantisers.
    """

    def __init__(self, flow: Flow, *, unquantized: bool):
        self.flow, self.firmware = flow, flow.firmware
        self.config = flow.firmware.config
        self.constants = (RealConstants if unquantized else Constants)(flow.firmware)
        self.nodes: list[Node | None] = [None, None]
        self.order: list[int] = []
        self.content: dict[int, np.ndarray] = {}
        self.shared: dict = {}
        self.quantizers = (Clips if unquantized else Quantizers)(self)

    def leaf(self, node: Node) -> int:
        """Add a leaf; returns its index."""
        self.nodes.append(node)
        node.out = refs(len(self.nodes) - 1, np.arange(node.places * node.width))
        return len(self.nodes) - 1

    def node(self, node: Node, known: np.ndarray | None = None) -> np.ndarray:
        """Add a node of which some elements are constants; returns its `out` as [places, width].

        Args:
            known: References [places, width] to constants, -1 where the element is none.
        """
        if known is not None and (known >= 0).all():
            return known
        index = self.leaf(node)
        self.order.append(index)
        if known is not None:
            node.out = np.where(known.reshape(-1) >= 0, known.reshape(-1), node.out)
        return node.out.reshape(node.places, node.width)

    def look(self, table: Refs, unit: int) -> np.ndarray:
        """References to the elements of items: [..., unit]."""
        found = np.empty((*table.value.shape, unit), np.int64)
        for value in np.unique(table.value).tolist():
            mask = table.value == value
            found[mask] = self.content[value].reshape(-1, unit)[table.item[mask]]
        return found
