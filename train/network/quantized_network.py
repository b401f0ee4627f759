"""Any network with quantisers as one module, made from the plan of its layers, and its way back to the model.

Source: S0; S1; numerics.md of the specification.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from concord.frontends.torch.read import check_answer, graph_of
from concord.net.cells.output_codes import output_codes
from concord.net.graph import INPUT, Graph
from concord.net.layers.layer import Layer
from concord.net.ops.attention import Attention
from concord.net.ops.recurrent import Recurrence
from concord.net.quantize.blocks import Blocks
from concord.net.quantize.choices import BlockRecipe, Choices
from concord.net.quantize.integers import Integers
from concord.net.quantize.plan import AVERAGES, Part
from concord.net.quantize.quantized import CALIBRATED, calibrate, model_layers, prepared
from concord.net.quantize.recipe import Recipe
from concord.net.quantize.staged import StagedIntegers, check_staged
from concord.train.lib.observer import Progress, silent
from concord.train.network import operations
from concord.train.network.attention import attention
from concord.train.qat.block_layer import BlockAverageLayer, BlockLayer
from concord.train.qat.layer import QuantizedAverage, QuantizedLayer
from concord.train.recurrent.directions import Directions, last
from concord.train.recurrent.quantized import BlockQuantizedRecurrent, QuantizedRecurrent
from torch import nn


class Layers(nn.ModuleDict):
    """Modules by names of any form, those of attributes of a module among them."""

    def __setitem__(self, key: str, module: nn.Module):
        self._modules[key] = module


class QuantizedNetwork(nn.Module):
    """A network whose layers have quantisers.

    Args:
        arithmetic: The plan of the network with the numbers from which training starts, see
            `net.quantize.quantized.calibrate`. It is not changed.

    Attributes:
        plan:   The layers of the network.
        layers: Layers with quantisers, by name.
        recipe: How layers are quantised.
    """

    def __init__(self, arithmetic: Integers | Blocks):
        super().__init__()
        self.arithmetic, self.plan, self.recipe = arithmetic, arithmetic.plan, arithmetic.recipe
        self.layers = Layers()
        for part in self.plan.parts:
            if isinstance(part.op, CALIBRATED):
                self.layers[part.name] = module_of(part, arithmetic)
        for name, layer in self.layers.items():
            if after := arithmetic.after(name):
                layer.answer_in(self.layers[after])

    def forward(self, x: torch.Tensor, lengths: torch.Tensor | None = None, *, lowered: bool = False) -> torch.Tensor:
        """The results float32[samples, outputs]; for the arguments see `trace`."""
        return self.trace(x, lengths, lowered=lowered)[self.plan.parts[-1].name].flatten(1)

    def trace(self, x: torch.Tensor, lengths: torch.Tensor | None = None, *, lowered: bool = False,
              before: str = "") -> dict[str, torch.Tensor]:
        """The result of every part, by name.

        Args:
            x:       float32[samples, ...], or float32[samples, time, inputs], the network's input.
            lengths: int64[samples], time steps of each sequence; all of them by default.
            lowered: Whether to compute in the machine's arithmetic, rather than in real numbers.
            before:  Name of the part before which to stop; empty for all parts.
        """
        return self._run(x, lengths, lowered, before)[0]

    def _run(self, x, lengths, lowered: bool, before: str) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """What `trace` returns, and the time steps of each result."""
        graph = self.plan.graph
        made = {INPUT: x if graph.sequence else x.reshape(len(x), *graph.plane)}
        times = {INPUT: torch.full((len(x),), x.shape[1]) if lengths is None else lengths}
        for part in self.plan.parts:
            if part.name == before:
                break
            entering = [self._entering(part, index, made[name], times[name])
                        for index, name in enumerate(part.sources)]
            times[part.name] = self._times(part, times[part.sources[0]])
            if part.name in self.layers:
                made[part.name] = self.layers[part.name](*entering, times[part.name], lowered=lowered)
            elif isinstance(part.op, Attention):
                made[part.name] = attention(part, entering, self.arithmetic.formats(part), lowered=lowered)
            else:
                made[part.name] = operations.result(part, entering, times[part.sources[0]], lowered=lowered)
        return made, times

    def _entering(self, part: Part, index: int, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """What a part reads of a result: the sequence, its last time step, or an image in the part's own shape."""
        graph, tensor, source = self.plan.graph, part.tensors[index], self.plan.node(part.sources[index])
        if graph.types[tensor].sequence:
            return x
        if source is not None and graph.types[source.node].sequence:
            x = last(x, lengths, operations.last_of(tensor, graph).backward)
        return x.reshape(len(x), *part.shapes[index])

    def _times(self, part: Part, lengths: torch.Tensor) -> torch.Tensor:
        """Time steps of the result of a part; a sequence made of an image has as many as the image has columns."""
        types = self.plan.graph.types
        begins = types[part.node].sequence and not types[part.tensors[0]].sequence
        return torch.full((len(lengths),), types[part.node].steps) if begins else lengths

    @torch.no_grad()
    def entering(self, name: str, x: torch.Tensor, lengths: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
        """What a layer reads in the machine's arithmetic, and its time steps, for a network's input as `trace` has it.
        """
        part = self.plan.node(name)
        made, times = self._run(x, lengths, True, name)
        (source,) = part.sources
        return self._entering(part, 0, made[source], times[source]), self._times(part, times[source])

    @torch.no_grad()
    def results(self, x: torch.Tensor, lengths: torch.Tensor | None = None) -> dict[str, tuple[np.ndarray, str]]:
        """The result of each layer with quantisers in real units, as its first reader reads it.

        Arguments are those of `trace`, in the machine's arithmetic.

        Returns:
            For each name of a layer, its result, and the name of the tensor of the float network that it stands for.
        """
        made, times = self._run(x, lengths, True, "")
        final, found = self.plan.parts[-1].name, {}
        for part in reversed(self.plan.parts):
            for index, name in enumerate(part.sources):
                if name in self.layers:
                    after = self.arithmetic.after(name)
                    real = self.layers[after].read(made[name]) if after else made[name]
                    found[name] = self._entering(part, index, real, times[name]).numpy(), part.tensors[index]
        return {final: (made[final].numpy(), self.plan.graph.output.name)} | found

    def bound(self):
        """Keep the parameters of the quantisers in their ranges."""
        for layer in self.layers.values():
            layer.bound()

    def groups(self, rate: float) -> list[dict]:
        """Groups of parameters with their learning rates."""
        found: dict[float, list] = {}
        for layer in self.layers.values():
            for factor, parameters in layer.rates().items():
                found.setdefault(factor, []).extend(one for one in parameters if one.requires_grad)
        return [{"params": parameters, "lr": rate * factor} for factor, parameters in found.items() if parameters]

    def become(self, other: "QuantizedNetwork"):
        """Take over the numbers and the layers of another network."""
        self.arithmetic, self.plan, self.recipe, self.layers = (
            other.arithmetic, other.plan, other.recipe, other.layers)

    @torch.no_grad()
    def trained(self) -> Integers | Blocks:
        """The plan with the numbers that training has found."""
        made = self.arithmetic.copied()
        for name, layer in self.layers.items():
            layer.write(made, name)
        return made

    def lower(self) -> tuple[tuple[Layer, ...], dict[str, tuple[str, ...]]]:
        """The layers of the quantised model, and the sources of those that do not just read the layer before them."""
        return model_layers(self.trained())


def check(network: nn.Module, shape: Sequence[int], recipe: Recipe | BlockRecipe, classes: int | None = None, *,
          machine: bool = True):
    """Refuse networks and recipes that would fail later.

    Args:
        network: Network in FP32, trained or not.
        shape:   Shape of one sample.
        recipe:  How it is to be quantised.
        classes: Number of classes of its output, or None for any.
        machine: Whether integers must be operands of a machine.

    Raises:
        Unsupported: an operation of the network cannot be quantised.
        ValueError: the network does not take such samples, it has another number of classes, the recipe names a layer
            that is not there, or a method cannot do a width.
    """
    prepared(graph_of(network, shape), Choices(recipe=recipe), machine=machine)
    check_answer(network, shape, classes)


def behind_quantizers(
    network: nn.Module | Graph, x: torch.Tensor, recipe: Recipe | BlockRecipe | Choices,
    lengths: torch.Tensor | None = None, progress: Progress = silent, *, machine: bool = False,
) -> QuantizedNetwork:
    """A network with quantisers whose ranges a calibration set has given.

    Args:
        network:  A module of PyTorch, or a float network. It is not changed.
        x:        float32[samples, ...], or float32[samples, time, inputs], the calibration set.
        recipe:   How the network is quantised.
        lengths:  int[samples], time steps of each sequence; all of them by default.
        progress: Shows each layer that has been quantised.
        machine:  Whether integers must be operands of a machine; otherwise numbers may stay in FP32.

    Raises:
        Unsupported: an operation of the network cannot be quantised.
        ValueError: a method cannot do a width, or the network does not take such samples.
    """
    graph = network if isinstance(network, Graph) else graph_of(network, tuple(x.shape[1:]))
    choices = recipe if isinstance(recipe, Choices) else Choices(recipe=recipe)
    times = None if lengths is None else np.asarray(lengths)
    fixed = x.shape[1] if graph.sequence and (times is None or (times == x.shape[1]).all()) else None
    arithmetic = first_stage(prepared(graph, choices, fixed, machine=machine), choices)
    calibrate(arithmetic, x.numpy(), times, progress)
    return QuantizedNetwork(arithmetic)


def first_stage(arithmetic: Integers | Blocks, choices: Choices) -> Integers | Blocks:
    """A network that can be quantised, of which nothing is initialised where training has stages.

    Raises:
        ValueError: the network has recurrent layers, which have no stages.
    """
    if not getattr(choices.recipe, "stages", ()):
        return arithmetic
    check_staged(arithmetic.plan.graph)
    whole = replace(choices, recipe=arithmetic.recipe)
    return StagedIntegers(arithmetic.plan, whole, frozenset(), frozenset(), {})


def module_of(part: Part, arithmetic: Integers | Blocks) -> nn.Module:
    """The module of a part with the numbers from which training starts.

    It computes `forward(x, lengths, lowered)`, keeps its parameters in their ranges (`bound`), names them by their
    share of the learning rate (`rates`), and writes them back into the arithmetic (`write`).
    """
    recipe = arithmetic.recipe
    if isinstance(arithmetic, Blocks):
        if isinstance(part.op, Recurrence):
            formats = recipe.formats(part.name)
            results = recipe.results.of(part.name) is not None
            codes = arithmetic.outputs.get(part.name) or [None] * 2
            return Directions(part.op, [
                BlockQuantizedRecurrent(part.op, one, *formats, recipe.block, results, output_codes(
                    part.op.cell, arithmetic.gates.outputs, own))
                for one, own in zip(part.op.directions, codes, strict=False)])
        kind = BlockAverageLayer if isinstance(part.op, AVERAGES) else BlockLayer
        return kind(part, recipe, arithmetic.places[part.name], arithmetic.patch(part))
    if isinstance(part.op, Recurrence):
        return Directions(part.op, [QuantizedRecurrent(part.op, one, found, arithmetic.gates) for one, found
                                    in zip(part.op.directions, arithmetic.gated[part.name], strict=True)])
    made = (QuantizedAverage if isinstance(part.op, AVERAGES) else QuantizedLayer)(
        part, arithmetic.rows[part.name], recipe)
    if recipe.input_kept and INPUT in part.sources and made.inputs is not None:
        made.inputs.requires_grad_(False)
    return made
