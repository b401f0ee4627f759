"""Any imported network as a module of PyTorch."""

from concord.net.graph import Graph
from concord.train.imported.graph_module import graph_module
from concord.train.imported.sequences import sequence_network
from torch import nn


def module_of(network: Graph) -> nn.Module:
    """The network in FP32, whose layers have the names of their nodes.

    Returns:
        An `fx.GraphModule` of one tensor, see `graph_module`; or, where samples are sequences, a
        `FloatSequenceNetwork` of a tensor and lengths.

    Raises:
        Unsupported: some operations cannot be quantised; the message has a line for each.
    """
    return sequence_network(network) if network.sequence else graph_module(network)
