"""Classifiers of sequences: recurrent layers and a linear layer on the last hidden vector."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from concord.model.cells.cell import Cell
from concord.spec.formats import Format
from concord.train.lib.methods import Gates
from concord.train.ptq import quantise as ptq
from concord.train.qat.block_layer import BlockLayer
from concord.train.recurrent.bidirectional import Bidirectional, lower_all, mapped
from concord.train.recurrent.block_layer import BlockQuantisedRecurrent
from concord.train.recurrent.float_layer import FloatRecurrent
from concord.train.recurrent.hidden_linear import SignedLinear
from concord.train.recurrent.integer_layer import SYMMETRIC, QuantisedRecurrent
from concord.train.recurrent.operations import widen
from torch import nn

#: Name of the linear layer in models.
HEAD = "output"


class FloatClassifier(nn.Module):
    """The FP32 network.

    Args:
        inputs:  Elements of the input vector of a time step.
        hidden:  Sizes of the recurrent layers.
        classes: Outputs of the linear layer.
        cell:    The cell of every recurrent layer.
        both:    Whether each layer reads a sequence from its end, too.
    """

    def __init__(self, inputs: int, hidden: Sequence[int], classes: int, cell: Cell, *, both: bool = False):
        super().__init__()
        self.cell = cell
        sizes = (inputs, *(size * (1 + both) for size in hidden))
        made = ([FloatRecurrent(cell, i, o) for _ in range(1 + both)] for i, o in zip(sizes, hidden, strict=False))
        self.layers = nn.ModuleList(Bidirectional(*layers) if both else layers[0] for layers in made)
        self.head = nn.Linear(sizes[-1], classes)

    def forward(self, x, lengths):
        for layer in self.layers:
            x, last = layer(x, lengths)
        return self.head(last)

    @property
    def names(self) -> list[str]:
        """Names of the recurrent layers in models."""
        return [f"{self.cell.name}{index + 1}" for index in range(len(self.layers))]

    @property
    def recurrent(self) -> list[FloatRecurrent]:
        """The recurrent layers of all directions."""
        return [module for module in self.modules() if isinstance(module, FloatRecurrent)]

    def hidden_vectors(self, x, lengths) -> list[torch.Tensor]:
        """float[samples, time, hidden] of each recurrent layer."""
        found = []
        with torch.no_grad():
            for layer in self.layers:
                x, _ = layer(x, lengths)
                found.append(x)
        return found


class QuantisedClassifier(nn.Module):
    """The network in integers: in real numbers between its quantisers, or lowered, in the machine's arithmetic.

    Args:
        net:            The FP32 network.
        x:              Real[samples, time, inputs], calibration set.
        lengths:        int[samples], time steps of each sample of the calibration set; all by default.
        weights_format: Format of the weights.
        input_format:   Format of the signed codes.
        gates:          How the weights of gates become integers.
    """

    def __init__(
        self, net: FloatClassifier, x, weights_format: Format, input_format: Format, gates: Gates = SYMMETRIC,
        lengths: torch.Tensor | None = None,
    ):
        super().__init__()
        lengths = torch.full((len(x),), x.shape[1]) if lengths is None else lengths
        steps = [ptq.symmetric(x.numpy(), input_format)[1], *_hidden_steps(net, x, lengths, input_format)]
        self.names = net.names
        self.layers = nn.ModuleList(
            mapped(layer, partial(QuantisedRecurrent, s_in=s_in, weights_format=weights_format,
                                  input_format=input_format, gates=gates, s_hidden=s_hidden))
            for layer, s_in, s_hidden in zip(net.layers, steps, steps[1:], strict=False)
        )
        self.head = SignedLinear(net.head, weights_format, input_format, steps[-1])

    def forward(self, x, lengths, lowered: bool = False):
        for layer in self.layers:
            x, last = layer(x, lengths, lowered)
        return self.head(last, lowered)

    def groups(self, rate: float) -> list[dict]:
        """Parameters with their learning rates: weights are in steps, biases and vectors in real units."""
        weights = [p for name, p in self.named_parameters() if "weight" in name]
        others = [p for name, p in self.named_parameters() if "weight" not in name]
        return [{"params": weights, "lr": rate * 100}, {"params": others, "lr": rate}]

    def lower(self, x, lengths) -> tuple[tuple, dict]:
        """The layers of the quantised model, their ranges recorded over the samples x, and their sources."""
        made, ranges = lower_all(self.layers, self.names, x, lengths), {}
        with torch.no_grad():
            widen(ranges, "input", made.last)
            widen(ranges, "output", self.head(made.last, True))
        return (*made.layers, self.head.lower(HEAD, ranges)), made.sources


def _hidden_steps(net: FloatClassifier, x, lengths, fmt: Format) -> list[float]:
    """The step of the codes of each layer's hidden vector: fixed where that lies in -1..1, else by calibration."""
    if net.cell.bounded:
        return [2.0 ** -(fmt.bits - 1)] * len(net.layers)
    return [ptq.symmetric(hidden.numpy(), fmt)[1] for hidden in net.hidden_vectors(x, lengths)]


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
        net:     The FP32 network.
        x:       Real[samples, time, inputs], calibration set.
        lengths: int[samples], time steps of each sample of the calibration set.
        formats: Formats of all layers.
    """

    def __init__(self, net: FloatClassifier, x, lengths, formats: BlockFormats):
        super().__init__()
        self.names = net.names
        self.layers = nn.ModuleList(
            mapped(layer, lambda one: BlockQuantisedRecurrent(one, formats.weights, formats.inputs, formats.block))
            for layer in net.layers
        )
        self.head = BlockLayer(net.head, net.hidden_vectors(x, lengths)[-1].flatten(0, 1), formats, HEAD)

    def forward(self, x, lengths, lowered: bool = False):
        for layer in self.layers:
            x, last = layer(x, lengths, lowered)
        return self.head(last, lowered)

    def groups(self, rate: float) -> list[dict]:
        """All parameters, which are in real units, with one learning rate."""
        return [{"params": list(self.parameters()), "lr": rate}]

    def lower(self, x, lengths) -> tuple[tuple, dict]:
        """The layers of the quantised model, and their sources."""
        made = lower_all(self.layers, self.names, x, lengths)
        return (*made.layers, self.head.lower((self.head.weight.shape[1],))), made.sources
