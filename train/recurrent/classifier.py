"""Networks of sequences behind their quantisers: recurrent layers, and dense layers on the last hidden vector."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from concord.net.quantize import tensors as ptq
from concord.net.quantize.recipe import Gates, Methods, Recipe
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format
from concord.train.lib.curves import CURVES
from concord.train.lib.observer import Progress, silent
from concord.train.qat.block_layer import BlockLayer
from concord.train.qat.network import QuantizedNetwork
from concord.train.recurrent.bidirectional import lower_all, mapped
from concord.train.recurrent.block_layer import BlockQuantizedRecurrent
from concord.train.recurrent.float_layer import FloatRecurrent
from concord.train.recurrent.float_network import Dense, FloatSequenceNetwork
from concord.train.recurrent.hidden_linear import SignedLinear
from concord.train.recurrent.integer_layer import SYMMETRIC, QuantizedRecurrent
from concord.train.recurrent.operations import widen
from torch import nn

#: Methods of post-training quantisation by default.
MMSE = Methods()


class QuantizedClassifier(nn.Module):
    """The network in integers: in real numbers between its quantisers, or lowered, in the machine's arithmetic.

    Args:
        net:            The FP32 network.
        x:              Real[samples, time, inputs], calibration set.
        lengths:        int[samples], time steps of each sample of the calibration set; all by default.
        weights_format: Format of the weights.
        input_format:   Format of the signed codes.
        gates:          How the weights of gates become integers.
        progress:       Shows each layer that has been quantised.
        methods:        How the dense layers behind the first one are quantised.
    """

    def __init__(
        self, net: FloatSequenceNetwork, x, weights_format: Format, input_format: Format, gates: Gates = SYMMETRIC,
        lengths: torch.Tensor | None = None, progress: Progress = silent,
        methods: Methods = MMSE,
    ):
        super().__init__()
        lengths = torch.full((len(x),), x.shape[1]) if lengths is None else lengths
        steps = [ptq.symmetric(x.numpy(), input_format)[1], *_hidden_steps(net, x, lengths, input_format)]
        self.names = net.names
        self.layers = nn.ModuleList()
        for name, layer, s_in, s_hidden in zip(net.names, net.layers, steps, steps[1:], strict=False):
            self.layers.append(mapped(layer, partial(
                QuantizedRecurrent, s_in=s_in, weights_format=weights_format, input_format=input_format, gates=gates,
                s_hidden=s_hidden)))
            progress("PTQ", len(self.layers), len(net.layers), f"{name}: {lost(self.layers[-1])}")
        first, *rest = net.dense
        self.head = SignedLinear(first.layer, weights_format, input_format, steps[-1], first.activation)
        self.head_name, self.rest = first.name, None
        if rest:
            recipe = Recipe(weights_bits=weights_format.bits, input_bits=input_format.bits,
                            symmetric=(True, input_format.symmetric), methods=methods)
            self.rest = QuantizedNetwork(_sequential(rest), net.dense_inputs(x, lengths)[1], recipe, progress)

    def forward(self, x, lengths, lowered: bool = False):
        for layer in self.layers:
            x, last = layer(x, lengths, lowered)
        return self._dense(last, lowered)

    def _dense(self, last, lowered: bool):
        """The results of the dense layers."""
        made = self.head(last, lowered)
        return made if self.rest is None else self.rest(made, lowered)

    def groups(self, rate: float) -> list[dict]:
        """Parameters with their learning rates: weights are in steps, biases and vectors in real units."""
        own = [(name, p) for name, p in self.named_parameters() if not name.startswith("rest.")]
        weights = [p for name, p in own if "weight" in name]
        others = [p for name, p in own if "weight" not in name]
        found = [{"params": weights, "lr": rate * 100}, {"params": others, "lr": rate}]
        return found + (self.rest.groups(rate) if self.rest else [])

    def bound(self):
        """Keep the parameters of quantisers in their ranges."""
        if self.rest:
            self.rest.bound()

    def lower(self, x, lengths) -> tuple[tuple, dict]:
        """The layers of the quantised model, their ranges recorded over the samples x, and their sources."""
        made, ranges = lower_all(self.layers, self.names, x, lengths), {}
        with torch.no_grad():
            widen(ranges, "input", made.last)
            widen(ranges, "output", self.head(made.last, True))
        rest = self.rest.lower()[0] if self.rest else ()
        return (*made.layers, self.head.lower(self.head_name, ranges), *rest), made.sources


def lost(layer: nn.Module) -> str:
    """Loss of the weights of recurrent layers by quantisation, in words."""
    parts = [part for part in layer.modules() if hasattr(part, "decibels")]
    return "weights " + ", ".join(f"{part.decibels():.1f}" for part in parts) + " dB"


def _sequential(dense: Sequence[Dense]) -> nn.Sequential:
    """Dense layers as a module, in which they have their names."""
    parts = OrderedDict()
    for one in dense:
        parts[one.name] = one.layer
        if one.activation is not Activation.NONE:
            parts[f"{one.name} {one.activation}"] = CURVES[one.activation].module()
    return nn.Sequential(parts)


def _hidden_steps(net: FloatSequenceNetwork, x, lengths, fmt: Format) -> list[float]:
    """The step of the codes of each layer's hidden vector: fixed where that lies in -1..1, else by calibration."""
    bounded = [all(one.cell.bounded for one in layer.modules() if isinstance(one, FloatRecurrent))
               for layer in net.layers]
    hidden = [None] * len(bounded) if all(bounded) else net.hidden_vectors(x, lengths)
    return [2.0 ** -(fmt.bits - 1) if fixed else ptq.symmetric(vectors.numpy(), fmt)[1]
            for fixed, vectors in zip(bounded, hidden, strict=True)]


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockFormats:
    """The formats of a network in block floating point.

    Attributes:
        weights: Format of the weights.
        inputs:  Format of what enters each layer.
        block:   Elements that share an exponent: a native vector.
    """

    weights: Format
    inputs: Format
    block: int

    def formats(self, name: str) -> tuple[Format, Format]:
        """Formats of the weights and inputs of a layer, as `BlockLayer` asks for them."""
        return self.weights, self.inputs


class BlockClassifier(nn.Module):
    """The network in block floating point: in real numbers behind its quantisers, or in the machine's arithmetic.

    Args:
        net:      The FP32 network.
        x:        Real[samples, time, inputs], calibration set.
        lengths:  int[samples], time steps of each sample of the calibration set.
        formats:  Formats of all layers.
        progress: Shows each layer that has been quantised.
    """

    def __init__(
        self, net: FloatSequenceNetwork, x, lengths, formats: BlockFormats, progress: Progress = silent,
    ):
        super().__init__()
        self.names = net.names
        self.layers = nn.ModuleList()
        for name, layer in zip(net.names, net.layers, strict=True):
            self.layers.append(mapped(
                layer, lambda one: BlockQuantizedRecurrent(one, formats.weights, formats.inputs, formats.block)))
            progress("PTQ", len(self.layers), len(net.layers), f"{name}: {lost(self.layers[-1])}")
        self.head = nn.ModuleList(
            BlockLayer(dense.layer, samples, formats, dense.name)
            for dense, samples in zip(net.dense, net.dense_inputs(x, lengths), strict=True))
        for layer, dense in zip(self.head, net.dense, strict=True):
            layer.activation = dense.activation

    def forward(self, x, lengths, lowered: bool = False):
        for layer in self.layers:
            x, last = layer(x, lengths, lowered)
        for layer in self.head:
            last = layer(last, lowered)
        return last

    def bound(self):
        """There are no quantisers with parameters."""

    def groups(self, rate: float) -> list[dict]:
        """All parameters, which are in real units, with one learning rate."""
        return [{"params": list(self.parameters()), "lr": rate}]

    def lower(self, x, lengths) -> tuple[tuple, dict]:
        """The layers of the quantised model, and their sources."""
        made = lower_all(self.layers, self.names, x, lengths)
        return (*made.layers, *(layer.lower((layer.weight.shape[1],)) for layer in self.head)), made.sources
