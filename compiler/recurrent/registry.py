"""The compilers of recurrent layers, by the class of the layer."""

from concord.compiler.lib.layer_compiler import LayerCompiler
from concord.compiler.recurrent.block import BlockRecurrentCompiler
from concord.compiler.recurrent.integer import IntegerRecurrentCompiler
from concord.model.layers.layer import Layer
from concord.model.layers.recurrent import BlockRecurrent, IntegerRecurrent

RECURRENT: dict[type[Layer], LayerCompiler] = {
    IntegerRecurrent: IntegerRecurrentCompiler(),
    BlockRecurrent: BlockRecurrentCompiler(),
}
