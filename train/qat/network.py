"""Any network of supported layers under quantisation-aware training, and its lowering to the model.

Source: S0; numerics.md of the specification, integer mode.
"""

import torch
from concord.net.layers.convolution import Conv
from concord.net.layers.dense import Dense
from concord.net.layers.layer import Layer
from concord.net.lowering import image_lowering, lowering
from concord.net.quantize.recipe import Recipe
from concord.spec.numbers.activation import Activation
from concord.train.lib.observer import Progress, silent
from concord.train.qat import operations
from concord.train.qat.average import QuantizedAverage, convolution
from concord.train.qat.check import layers
from concord.train.qat.graph import INPUT, Node, nodes, readers, users
from concord.train.qat.layer import QuantizedLayer
from concord.train.qat.modules import QUANTISED, Kind
from torch import nn

#: Activation functions of results in steps of the next layer's code, whose clip is the relu.
IN_STEPS = {Activation.NONE, Activation.RELU}
#: Learning rate of saturations and offsets, as a share of that of weights.
QUANTISER_RATE = 0.1


class QuantizedNetwork(nn.Module):
    """A network whose layers are behind quantisers.

    Args:
        network:  Network of supported layers, trained in FP32. It is not changed.
        images:   float32[samples, ...], the calibration set.
        recipe:   How layers are quantised.
        progress: Shows each layer that has been quantised.

    Attributes:
        nodes:  Operations of the network.
        layers: Layers with quantisers, by name.
        recipe: How layers are quantised.

    Raises:
        Unsupported: an operation of the network cannot be quantised.
        ValueError: a method cannot do a width.
    """

    def __init__(self, network: nn.Module, images: torch.Tensor, recipe: Recipe, progress: Progress = silent):
        super().__init__()
        self.recipe = recipe
        self.nodes, self.layers = nodes(network), nn.ModuleDict()
        layers(self.nodes, recipe)
        with torch.no_grad():
            made = operations.results(self.nodes, images)
            self.shapes = {name: x.shape[1:] for name, x in made.items()}
            quantized = [node for node in self.nodes if node.kind in QUANTISED]
            for done, node in enumerate(quantized, 1):
                layer = self.layers[node.name] = self._layer(node, made[node.sources[0]], recipe)
                layer.activation = node.activation
                progress("PTQ", done, len(quantized), f"{node.name}: {layer.lost}")
        self._join()
        self._limit()

    def _layer(self, node: Node, x: torch.Tensor, recipe: Recipe) -> nn.Module:
        """The quantised layer of a convolution, dense layer or average, for its inputs x."""
        window = node.window(x.shape[1:])
        kind, module = QuantizedLayer, node.module
        if node.kind is Kind.AVERAGE:
            kind, module = QuantizedAverage, convolution(x.shape[1], window)
        made = kind(module, x, recipe, node.name, node.norm, node.fold, window)
        if recipe.input_kept and INPUT in node.sources:
            made.inputs.requires_grad_(False)
        return made

    def _join(self):
        """Let each layer give its result in steps of the next layer, if no other node reads it."""
        for node in self.nodes:
            if node.kind not in QUANTISED:
                continue
            functions, reader = {node.activation}, users(self.nodes, node.name)
            while len(reader) == 1 and reader[0].kind is Kind.MAX:
                functions.add(reader[0].activation)
                reader = users(self.nodes, reader[0].name)
            if len(reader) != 1 or reader[0].kind not in QUANTISED or not functions <= IN_STEPS:
                continue
            after = self.layers[reader[0].name]
            if after.inputs and (after.inputs.positive or Activation.RELU not in functions):
                self.layers[node.name].answer_in(after)

    def _limit(self):
        """Let the quantisers behind a relu6 clip there."""
        for node in (node for node in self.nodes if node.ceiling is not None):
            for reader in readers(self.nodes, node.name):
                quantizer = self.layers[reader.name].inputs
                quantizer.ceiling = node.ceiling
                quantizer.bound()

    def forward(self, x: torch.Tensor, lowered: bool = False):
        return self.trace(x, lowered)[self.nodes[-1].name].flatten(1)

    def trace(self, x: torch.Tensor, lowered: bool = False, before: str = "") -> dict[str, torch.Tensor]:
        """The result of every node, by name.

        Args:
            x:       float32[samples, ...], the network's input.
            lowered: Whether to compute in the machine's arithmetic, rather than in real numbers.
            before:  Name of the node before which to stop; empty for all nodes.
        """
        made = {INPUT: operations.entering(self.nodes, x)}
        for node in self.nodes:
            if node.name == before:
                break
            inputs = [made[name] for name in node.sources]
            if node.kind in QUANTISED:
                made[node.name] = self.layers[node.name](*inputs, lowered)
            else:
                made[node.name] = operations.lowered(node, inputs) if lowered else operations.real(node, inputs)
        return made

    def codes(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """The codes that the rows of a layer multiply in the machine, see `QuantizedLayer.patches`."""
        (source,) = next(node.sources for node in self.nodes if node.name == name)
        return self.layers[name].patches(self.trace(x, True, before=name)[source])

    def bound(self):
        """Keep the parameters of the quantisers in their ranges."""
        for layer in self.layers.values():
            if layer.inputs:
                layer.inputs.bound()

    def groups(self, rate: float) -> list[dict]:
        """Groups of parameters with their learning rates."""
        fast, slow = ([p for layer in self.layers.values() for p in layer.parts()[i]] for i in (0, 1))
        return [{"params": fast, "lr": rate}] + ([{"params": slow, "lr": rate * QUANTISER_RATE}] if slow else [])

    def lower(self, ranges: dict[str, dict] | None = None) -> tuple[tuple[Layer, ...], dict[str, tuple[str, ...]]]:
        """The layers of the quantised model, and the sources of those that do not just read the layer before them."""
        layers = tuple(self._lower(node, (ranges or {}).get(node.name, {})) for node in self.nodes)
        previous, sources = INPUT, {}
        for node in self.nodes:
            if node.sources != (previous,):
                sources[node.name] = node.sources
            previous = node.name
        return layers, sources

    def _lower(self, node: Node, ranges: dict) -> Layer:
        if node.kind not in QUANTISED:
            return operations.lower(node, self.shapes)
        return self._lower_layer(self.layers[node.name], tuple(self.shapes[node.sources[0]]), ranges)

    def _lower_layer(self, layer: QuantizedLayer, shape: tuple[int, ...], ranges: dict) -> Layer:
        return lower_layer(layer, shape, ranges)


def lower_layer(layer: QuantizedLayer, shape: tuple[int, ...], ranges: dict) -> Dense | Conv:
    """The layer of the model that computes what `QuantizedLayer.forward` does."""
    with torch.no_grad():
        integers, gain = layer.weights()
        s_out, m_out = layer._behind()
        gain, constant = layer.folded(gain, integers.double().sum(1))
        integers, geometry = integers.numpy(), layer.geometry
        dense = lowering.dense(
            name=layer.name, codes=integers, gain=gain.numpy(), constant=constant.double().numpy(),
            weights_format=layer.weights_format, input_format=layer.input_format, unsigned=True,
            s_in=layer.inputs.step, m_in=layer.inputs.offset,
            s_out=s_out, m_out=m_out, quantize_input=not layer.in_steps, ranges=ranges,
            activation=layer.activation,
            fp32={"weights": layer.fp32["weights"].reshape(integers.shape), "bias": layer.fp32["bias"],
                  **({} if layer.inputs.ceiling is None else {"ceiling": [layer.inputs.ceiling]})})
        if geometry.dense:
            return dense
        return image_lowering.convolution(
            dense, shape=shape, kernels=geometry.shape, kind=layer.kind, **geometry.fields)

