"""The stages that the chain of a tensor uses, and with them the sums that can follow in this chain.

The planner has not made the chains yet when this is asked. A position is a stage of one of the multi-function units,
counted in the order in which words pass through them; -1 stands before the first one.
"""

from concord.compiler.graph.network import Network, Node
from concord.compiler.graph.values import Value
from concord.golden.lib import float16
from concord.net.layers.add import Add
from concord.net.layers.average import BlockAverage
from concord.net.layers.concat import Concat
from concord.net.layers.convolution import BlockConv, Conv
from concord.net.layers.dense import Dense
from concord.net.layers.pool import MaxPool
from concord.net.layers.recurrent import Recurrent
from concord.net.layers.sequences import SequenceToImage
from concord.spec.isa.operations import MFUS, Stage
from concord.spec.numbers.activation import Activation


def position(stage: Stage, mfu: int) -> int:
    """Position of a stage of one MFU."""
    return mfu * len(Stage) + stage


def next_mfu(stage: Stage, behind: int) -> int | None:
    """The MFU of the next stage of a kind behind a position, or None where there is none."""
    return next((mfu for mfu in range(MFUS) if position(stage, mfu) > behind), None)


class Stages:
    """The stages that the layers of a network use.

    Args:
        network: The network.
    """

    def __init__(self, network: Network):
        self._network = network

    def adds_nothing(self, node: Node) -> bool:
        """Whether the offset T of an integer layer can be skipped: it is zero, and no reader sees its sign."""
        if node.layer.offset.any():
            return False
        if node.activation is Activation.RELU:
            return True
        adds = self._network.consumers(node.value)
        return len(adds) == 1 and isinstance(adds[0][0].layer, Add) and (
            adds[0][0].activation is Activation.RELU or not any(
                self._minus_zero(other) for other in adds[0][0].sources if other is not node.value))

    def terms(self, node: Node) -> tuple[Value, Value]:
        """The term of a sum that is computed last, and the other one."""
        first, second = node.sources
        last = int(self._time(second) > self._time(first))
        return node.sources[last], node.sources[1 - last]

    def _time(self, value: Value) -> tuple[int, ...]:
        """When a tensor is computed: a sum follows its last term in the same pass, before sums listed behind it."""
        network, node = self._network, self._network.maker(value)
        own = network.nodes.index(node)
        match node.layer:
            case Add():
                anchor, _ = self.terms(node)
                if not isinstance(network.maker(anchor).layer, Concat):
                    return (*self._time(anchor), own)
            case Concat():
                return max(self._time(source) for source in node.sources)
            case SequenceToImage() | Recurrent():  # Images come first, then the vectors of the last step.
                loop = network.loop(node)
                return network.nodes.index(network.node(loop.layers[0].name)), isinstance(node.layer, Recurrent), own
        return (own,)

    def apart(self, anchor: Value, other: Value) -> bool:
        """Whether no chain computes the last term of a sum alone: a concatenation, or both terms."""
        return anchor is other or isinstance(self._network.maker(anchor).layer, Concat)

    def fused(self, node: Node, anchor: Value) -> int | None:
        """The MFU that can add to the last term of a sum in the chain that computes it, or None."""
        sent = any(result.value is anchor for result in self._network.results)
        if sent or len(self._network.consumers(anchor)) > 1:
            return None
        mfu = next_mfu(Stage.ADD, self._last(self._network.maker(anchor)))
        if mfu is None or (node.activation is not Activation.NONE
                           and next_mfu(Stage.ACT, position(Stage.ADD, mfu)) is None):
            return None
        return mfu

    def _last(self, node: Node) -> int:
        """Position of the last stage of the chain that computes a tensor."""
        match node.layer:
            case Dense() | Conv():
                last = position(Stage.MUL, 0) if self.adds_nothing(node) else position(Stage.ADD, 1)
            case BlockAverage():
                last = position(Stage.MUL, 0)
            case Add():
                anchor, other = self.terms(node)
                last = position(Stage.ADD, 0 if self.apart(anchor, other) else self.fused(node, anchor) or 0)
            case None | MaxPool() | Recurrent() | SequenceToImage():
                last = -1
            case _:
                last = position(Stage.ADD, 0)
        if node.activation is not Activation.NONE:
            last = position(Stage.ACT, next_mfu(Stage.ACT, last))
        return last

    def _minus_zero(self, value: Value) -> bool:
        """Whether a tensor may hold -0."""
        node = self._network.maker(value)
        match node.layer:
            case BlockConv() if not isinstance(node.layer, BlockAverage):
                return bool((node.layer.bias == float16.SIGN).any())
            case Dense() | Conv():
                return bool((node.layer.offset == float16.SIGN).any())
            case Add():
                return any(self._minus_zero(source) for source in node.sources)
        return True
