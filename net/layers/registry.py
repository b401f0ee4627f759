"""The kinds of layers, by their names in model files."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from concord.net.cells.cell import Cell
from concord.net.cells.registry import CELLS
from concord.net.layers.attention import BlockAttention
from concord.net.layers.convolution import BlockConv, Conv
from concord.net.layers.curves import ClippedLine, Curve, Leaky, Limited, TanhGelu
from concord.net.layers.dense import BlockDense, Dense
from concord.net.layers.enlarging import Enlarge
from concord.net.layers.joins import Add, Concat, GatedChannels, Multiply, SequenceConcat, Softmax
from concord.net.layers.layer import Layer
from concord.net.layers.pooling import Average, BlockAverage, BlockQuantizedResult, MaxPool, QuantizedResult
from concord.net.layers.positions import ConstantPositions, PixelOffsets
from concord.net.layers.recurrent import BlockRecurrent, IntegerRecurrent
from concord.net.layers.reductions import VectorNorm, VectorSoftmax
from concord.net.layers.sequences import ImageToSequence, SequenceToImage


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerKind:
    """A kind of layer.

    Attributes:
        layer: Class of the layer.
        fixed: Values of the fields that the kind determines.
    """

    layer: type[Layer]
    fixed: Mapping[str, Cell] = field(default_factory=dict)


#: The kinds by their names in model files. A recurrent layer has the name of its cell.
KINDS = {
    **{layer.__name__: LayerKind(layer=layer) for layer in (
        Dense, BlockDense, Conv, BlockConv, Average, QuantizedResult, BlockAverage, BlockQuantizedResult, MaxPool, Add,
        Multiply, GatedChannels, Curve, Leaky, ClippedLine, Limited, TanhGelu, VectorSoftmax, VectorNorm,
        BlockAttention, PixelOffsets, ConstantPositions, Concat, SequenceConcat, Enlarge, ImageToSequence,
        SequenceToImage, Softmax)},
    **{name.upper(): LayerKind(layer=IntegerRecurrent, fixed={"cell": cell}) for name, cell in CELLS.items()},
    **{f"Block{name.upper()}": LayerKind(layer=BlockRecurrent, fixed={"cell": cell}) for name, cell in CELLS.items()},
}


def kind_of(layer: Layer) -> str:
    """The name of a layer's kind.

    Raises:
        ValueError: the kind is unknown.
    """
    for name, kind in KINDS.items():
        if type(layer) is kind.layer and all(getattr(layer, key) is value for key, value in kind.fixed.items()):
            return name
    raise ValueError(f"layer {layer.name!r} is of the unknown kind {layer.title!r} and cannot be written")
