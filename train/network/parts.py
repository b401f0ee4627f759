"""Which module stands for a part of a network with quantisers."""

from concord.net.graph import INPUT
from concord.net.ops.recurrent import Recurrence
from concord.net.quantize.blocks import Blocks
from concord.net.quantize.integers import Integers
from concord.net.quantize.plan import AVERAGES, Part
from concord.train.qat.average import QuantizedAverage
from concord.train.qat.block_average import BlockAverageLayer
from concord.train.qat.block_layer import BlockLayer
from concord.train.qat.layer import QuantizedLayer
from concord.train.recurrent.block_layer import BlockQuantizedRecurrent
from concord.train.recurrent.directions import Directions
from concord.train.recurrent.integer_layer import QuantizedRecurrent
from torch import nn


def module_of(part: Part, arithmetic: Integers | Blocks) -> nn.Module:
    """The module of a part with the numbers from which training starts.

    It computes `forward(x, lengths, lowered)`, keeps its parameters in their ranges (`bound`), names them by their
    share of the learning rate (`rates`), and writes them back into the arithmetic (`write`).
    """
    recipe = arithmetic.recipe
    if isinstance(arithmetic, Blocks):
        if isinstance(part.op, Recurrence):
            formats = recipe.formats(part.name)
            return Directions(part.op, [BlockQuantizedRecurrent(part.op, one, *formats, recipe.block)
                                        for one in part.op.directions])
        kind = BlockAverageLayer if isinstance(part.op, AVERAGES) else BlockLayer
        return kind(part, recipe, arithmetic.places[part.name], arithmetic.patch(part))
    if isinstance(part.op, Recurrence):
        return Directions(part.op, [QuantizedRecurrent(part.op, one, found, arithmetic.gates.outputs) for one, found
                                    in zip(part.op.directions, arithmetic.gated[part.name], strict=True)])
    made = (QuantizedAverage if isinstance(part.op, AVERAGES) else QuantizedLayer)(
        part, arithmetic.rows[part.name], recipe)
    if recipe.input_kept and INPUT in part.sources and made.inputs is not None:
        made.inputs.requires_grad_(False)
    return made
