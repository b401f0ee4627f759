"""Whether a machine can run a network of images: the reasons why it cannot, by layer."""

from concord.compiler.images import kernels
from concord.compiler.images.network import Network
from concord.compiler.images.wiring import wired
from concord.compiler.lib import limits
from concord.compiler.lib.neighbours import ALONE, Neighbours
from concord.compiler.lib.reason import Reason
from concord.compiler.lib.received import Received
from concord.compiler.recurrent.registry import RECURRENT
from concord.model.layers.add import Add
from concord.model.layers.average import Average, BlockAverage
from concord.model.layers.concat import Concat, SequenceConcat
from concord.model.layers.convolution import BlockConv, Conv
from concord.model.layers.dense import Dense
from concord.model.layers.layer import Layer
from concord.model.layers.pool import MaxPool
from concord.model.layers.recurrent import Recurrent
from concord.model.layers.sequences import ImageToSequence, SequenceToImage
from concord.model.layers.softmax import Softmax
from concord.model.model import Model
from concord.spec.config import Config

#: Classes of layers that put a sequence into another order.
SEQUENCES = (ImageToSequence, SequenceToImage, SequenceConcat)
#: Classes of layers that have images.
IMAGES = (Conv, BlockConv, Average, BlockAverage, MaxPool, ImageToSequence, SequenceToImage)
_UNKNOWN = "there is no such layer on this machine: use other layers, or run it on the host"
_KNOWN = (*kernels.PRODUCTS, MaxPool, Add, Concat, Recurrent, *SEQUENCES, Softmax, Received)


def has_images(model: Model) -> bool:
    """Whether a model has layers of images."""
    return any(isinstance(layer, IMAGES) for layer in model.layers)


def problems(model: Model, config: Config, neighbours: Neighbours = ALONE) -> dict[str, list[Reason]]:
    """Each reason why a machine cannot run a network with images, by the layer's name."""
    if not config.vector_rf:
        reason = Reason(
            sentence="the machine has no VectorRf, which images need: choose a preset that has one, such as vision",
            attribute="vector_rf", needed=config.tile_engines, available=0)
        return {layer.name: [reason] for layer in model.layers if isinstance(layer, IMAGES)}
    found = {layer.name: _of_layer(layer, config) for layer in model.layers}
    if any(found.values()):
        return found
    wiring = wired(model, neighbours.shape, neighbours.sends)
    return wiring.problems or Network(wiring, config, patches=not neighbours.before).problems


def _of_layer(layer: Layer, config: Config) -> list[Reason]:
    """Why the machine cannot run a layer, wherever it stands."""
    if not isinstance(layer, _KNOWN):
        return [Reason(sentence=_UNKNOWN)]
    if isinstance(layer, Recurrent):
        return RECURRENT[type(layer)].problems(layer, config)
    if isinstance(layer, Softmax):
        return limits.softmax(config, layer.inputs)
    if not isinstance(layer, kernels.PRODUCTS):
        return []
    found = []
    if config.accumulator_rows < config.native_dim:
        found.append(limits.accumulator_rows(config, config.native_dim, f"a native vector of {config.native_dim}"))
    if isinstance(layer, Dense | Conv):
        found += limits.integer_operands(layer, config, [layer.weights])
        return found + limits.start_values(layer.start, config)
    return found + limits.block_operands(layer, config)
