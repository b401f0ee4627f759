"""Imported networks behind quantisers, whatever their kind and arithmetic."""

from collections.abc import Mapping

import torch
from concord.net.layers.layer import Layer
from concord.net.quantize.choices import Choices
from concord.net.quantize.recipe import Gates, Recipe
from concord.train.imported.source import Source
from concord.train.lib.observer import Progress, silent
from concord.train.qat.block import BlockNetwork
from concord.train.qat.check import check as check_graph
from concord.train.qat.network import QuantizedNetwork
from concord.train.recurrent.classifier import BlockClassifier, BlockFormats, QuantizedClassifier

#: A network behind quantisers, in integers or in block floating point.
Quantized = QuantizedNetwork | QuantizedClassifier | BlockClassifier


def check(source: Source, choices: Choices):
    """Refuse choices that would fail later.

    Raises:
        Unsupported: an operation of the network cannot be quantised.
        ValueError: a method cannot do a width, or is for another kind of network.
    """
    if not source.network.sequence:
        if choices.gates != Gates():
            raise ValueError("--asymmetric, --shared and --gate-bits are for recurrent networks: leave them out")
        check_graph(source.net, choices.recipe, source.network.plane)
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


def quantized(source: Source, choices: Choices, progress: Progress = silent) -> Quantized:
    """The network behind quantisers, by its calibration set.

    Raises:
        ValueError: a method cannot do a width.
    """
    inputs = source.calibration.inputs
    if not source.network.sequence:
        kind = BlockNetwork if choices.blocks else QuantizedNetwork
        return kind(source.net, *inputs, choices.recipe, progress)
    x, lengths = inputs
    weights, codes = choices.formats
    with torch.no_grad():
        if choices.blocks:
            formats = BlockFormats(weights=weights, inputs=codes, block=choices.recipe.block)
            return BlockClassifier(source.net, x, lengths, formats, progress)
        return QuantizedClassifier(
            source.net, x, weights, codes, choices.gates, lengths, progress, choices.recipe.methods)


def lowered(source: Source, net: Quantized) -> tuple[tuple[Layer, ...], Mapping[str, tuple[str, ...]]]:
    """The layers of the quantised model, and the sources of those that do not just read the layer before them."""
    return net.lower(*source.calibration.inputs) if source.network.sequence else net.lower()
