"""What is asked of a network in float32 before it is quantised."""

from concord.model.floating.network import RECURRENT, FloatNetwork, Op


def weights(network: FloatNetwork) -> int:
    """Number of weights that a machine stores for its products, at least."""
    return sum(tensor.size for node in network.nodes if node.op in (Op.DENSE, Op.CONV, *RECURRENT)
               for key, tensor in node.tensors.items() if key.startswith("weight"))
