"""The kind of every class of layers that a machine can run, and the kinds that make no chains of their own."""

from concord.compiler.emit.chains import Chain
from concord.compiler.emit.sources import FromNet
from concord.compiler.graph.nodes import Kind, Node
from concord.compiler.kinds.joins import Concatenation, Sum
from concord.compiler.kinds.pool import Pool
from concord.compiler.kinds.product import BlockAverageProduct, IntegerProduct, Product
from concord.compiler.kinds.recurrent import HiddenImage, RecurrentLayer
from concord.compiler.lib import limits
from concord.compiler.lib.reason import Reason
from concord.compiler.lib.received import Received
from concord.compiler.plan.planner import Planner
from concord.net.layers.add import Add
from concord.net.layers.average import Average, BlockAverage
from concord.net.layers.concat import Concat, SequenceConcat
from concord.net.layers.convolution import BlockConv, Conv
from concord.net.layers.dense import BlockDense, Dense
from concord.net.layers.layer import Layer
from concord.net.layers.pool import MaxPool
from concord.net.layers.recurrent import BlockRecurrent, IntegerRecurrent
from concord.net.layers.sequences import ImageToSequence, SequenceToImage
from concord.net.layers.softmax import Softmax


class Input(Kind):
    """The network's input, or a tensor of the machine before; a loop over time steps takes the steps of a sequence."""

    def limits(self, layer, config, *, images):
        return [] if images else limits.vector_rows(layer.outputs)

    def plan(self, planner: Planner, node: Node):
        if not planner.demands.network.steps:
            planner.begin(node, Chain(source=FromNet()))


class Sequences(Kind):
    """A concatenation of sequences, which stands for one of images in a network that has them."""

    def limits(self, layer, config, *, images):
        return [] if images else [Reason(sentence=(
            "the machine keeps no whole sequences, which a layer behind two directions needs: use one recurrent layer "
            "in both directions, fix the number of time steps by a SequenceToImage and an ImageToSequence in front, or "
            "run it on the host"))]


class ResultSoftmax(Kind):
    """The softmax of the result, which the planner puts into the chain that sends it."""

    def limits(self, layer, config, *, images):
        return limits.softmax(config, layer.inputs)


class UnknownKind(Kind):
    """A layer that no machine runs."""

    def limits(self, layer, config, *, images):
        return [Reason(sentence="there is no such layer on this machine: use other layers, or run it on the host")]


_INPUT, _UNKNOWN = Input(), UnknownKind()
#: Every class of layers that a machine can run.
KINDS: dict[type[Layer], Kind] = {
    **dict.fromkeys((Dense, Conv, Average), IntegerProduct()),
    **dict.fromkeys((BlockDense, BlockConv), Product()),
    BlockAverage: BlockAverageProduct(),
    **dict.fromkeys((IntegerRecurrent, BlockRecurrent), RecurrentLayer()),
    MaxPool: Pool(),
    ImageToSequence: Kind(),
    SequenceToImage: HiddenImage(),
    Add: Sum(),
    Concat: Concatenation(),
    SequenceConcat: Sequences(),
    Softmax: ResultSoftmax(),
    Received: _INPUT,
}


def kind_of(layer: Layer | None) -> Kind:
    """The kind of a layer; None is the network's input."""
    return _INPUT if layer is None else KINDS.get(type(layer), _UNKNOWN)
