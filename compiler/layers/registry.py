"""The registry of layer compilers, by the class of the layer."""

from concord.compiler.layers import dense
from concord.compiler.layers.add import AddCompiler
from concord.compiler.layers.concat import ConcatCompiler
from concord.compiler.layers.received import ReceivedCompiler
from concord.compiler.layers.softmax import SoftmaxCompiler
from concord.compiler.lib.layer_compiler import LayerCompiler
from concord.compiler.lib.reason import Reason
from concord.compiler.lib.received import Received
from concord.compiler.recurrent.registry import RECURRENT
from concord.model.layers.add import Add
from concord.model.layers.concat import Concat, SequenceConcat
from concord.model.layers.dense import BlockDense, Dense
from concord.model.layers.layer import Layer
from concord.model.layers.softmax import Softmax
from concord.spec.config import Config

COMPILERS: dict[type[Layer], LayerCompiler] = {
    Dense: dense.INTEGER,
    BlockDense: dense.BLOCK,
    Add: AddCompiler(),
    Concat: ConcatCompiler(),
    Softmax: SoftmaxCompiler(),
    Received: ReceivedCompiler(),
    **RECURRENT,
}
#: Reasons why the machine cannot run layers of other classes.
_SEQUENCES = (
    "the machine keeps no whole sequences, which a layer behind two directions needs: use one recurrent layer in both "
    "directions, fix the number of time steps by a SequenceToImage and an ImageToSequence in front, or run it on the "
    "host"
)
REFUSED: dict[type[Layer], str] = {SequenceConcat: _SEQUENCES}
_UNKNOWN = "there is no such layer on this machine: use dense or recurrent layers, or run it on the host"


def problems(layer: Layer, config: Config) -> list[Reason]:
    """Each reason why a machine cannot run a layer."""
    if type(layer) in COMPILERS:
        return COMPILERS[type(layer)].problems(layer, config)
    return [Reason(sentence=REFUSED.get(type(layer), _UNKNOWN))]
