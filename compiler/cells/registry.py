"""The chains of recurrent layers, by the class of the layer."""

from concord.compiler.cells.block import BlockStep
from concord.compiler.cells.integer import IntegerStep
from concord.compiler.cells.time_step import TimeStep
from concord.net.layers.layer import Layer
from concord.net.layers.recurrent import BlockRecurrent, IntegerRecurrent

RECURRENT: dict[type[Layer], type[TimeStep]] = {IntegerRecurrent: IntegerStep, BlockRecurrent: BlockStep}
