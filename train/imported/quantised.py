"""Imported networks behind quantisers, whatever their kind and arithmetic."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from concord.model.layers.layer import Layer
from concord.spec.formats import Format
from concord.train.imported.graph_module import plane_shape
from concord.train.imported.source import Source
from concord.train.lib.block_recipe import BlockRecipe
from concord.train.lib.methods import Gates, Recipe
from concord.train.lib.observer import Progress, silent
from concord.train.qat.block import BlockNetwork
from concord.train.qat.check import check as check_graph
from concord.train.qat.network import QuantisedNetwork
from concord.train.recurrent.classifier import BlockClassifier, BlockFormats, QuantisedClassifier

#: A network behind quantisers, in integers or in block floating point.
Quantised = QuantisedNetwork | QuantisedClassifier | BlockClassifier


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """How a network is quantised.

    Attributes:
        recipe: Widths and methods. Recurrent networks take the widths, and `methods` for their dense layers.
        gates:  How the gates of recurrent layers become integers.
    """

    recipe: Recipe | BlockRecipe = Recipe(weights_bits=8, input_bits=8, symmetric=(True, True))
    gates: Gates = Gates()

    @property
    def blocks(self) -> bool:
        """Whether the network is in block floating point."""
        return isinstance(self.recipe, BlockRecipe)

    @property
    def formats(self) -> tuple[Format, Format]:
        """Formats of the weights and of the inputs of recurrent layers."""
        recipe = self.recipe
        if self.blocks:
            return recipe.formats("")
        return (Format(bits=recipe.weights_bits, symmetric=True),
                Format(bits=recipe.input_bits, symmetric=recipe.symmetric[1]))

    def words(self, sequence: bool) -> str:
        """The choices for networks of sequences, or for other ones, in words."""
        if not sequence or self.blocks:
            return str(self.recipe)
        weights, inputs = self.formats
        return f"weights of {weights.bits} bits, {self.gates}, x and h of {inputs.bits} bits"


def check(source: Source, choices: Choices):
    """Refuse choices that would fail later.

    Raises:
        Unsupported: an operation of the network cannot be quantised.
        ValueError: a method cannot do a width, or is for another kind of network.
    """
    if not source.network.sequence:
        if choices.gates != Gates():
            raise ValueError("--asymmetric, --shared and --gate-bits are for recurrent networks: leave them out")
        check_graph(source.net, choices.recipe, plane_shape(source.network))
        return
    recipe = choices.recipe
    plain = choices.blocks or recipe == Recipe(
        weights_bits=recipe.weights_bits, input_bits=recipe.input_bits, symmetric=recipe.symmetric,
        methods=recipe.methods)
    if not plain or recipe.bits:
        raise ValueError("recurrent networks have one way of training and one width: leave out --layer, --weights, "
                         "--activations, --start, --batch-norm and --keep-input")
    weights, _ = choices.formats
    choices.gates.travels_as(weights)
    for layer in source.net.recurrent:
        layer.cell.check_gate_bits(choices.gates.outputs)


def quantised(source: Source, choices: Choices, progress: Progress = silent) -> Quantised:
    """The network behind quantisers, by its calibration set.

    Raises:
        ValueError: a method cannot do a width.
    """
    inputs = source.calibration.inputs
    if not source.network.sequence:
        kind = BlockNetwork if choices.blocks else QuantisedNetwork
        return kind(source.net, *inputs, choices.recipe, progress)
    x, lengths = inputs
    weights, codes = choices.formats
    with torch.no_grad():
        if choices.blocks:
            formats = BlockFormats(weights=weights, inputs=codes, block=choices.recipe.block)
            return BlockClassifier(source.net, x, lengths, formats, progress)
        return QuantisedClassifier(
            source.net, x, weights, codes, choices.gates, lengths, progress, choices.recipe.methods)


def lowered(source: Source, net: Quantised) -> tuple[tuple[Layer, ...], Mapping[str, tuple[str, ...]]]:
    """The layers of the quantised model, and the sources of those that do not just read the layer before them."""
    return net.lower(*source.calibration.inputs) if source.network.sequence else net.lower()
