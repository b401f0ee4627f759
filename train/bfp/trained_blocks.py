"""The layers of a model with the mantissas that training by lazy update ends with: no real number lies between them."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from concord.golden.lazy.lazy_update import Parameters
from concord.net.graph import Graph
from concord.net.layers.layer import Layer
from concord.net.lowering.rounding import binary16
from concord.net.quantize.blocks import Blocks
from concord.net.quantize.choices import BlockFormats, Choices
from concord.net.quantize.plan import WEIGHTED, Part, plan
from concord.net.quantize.quantized import model_layers
from concord.train.bfp.float_graph import drawn
from concord.train.bfp.tensor_checkpoint import Checkpoint
from concord.train.bfp.tensor_network import TensorNetwork


class TrainedBlocks(Blocks):
    """Blocks whose mantissas are those of training, under the one exponent of their tensor.

    Args:
        graph:   The float network that the parameters stand for, see `float_graph.drawn`.
        kept:    Parameters, by the names of nodes and "weight" or "bias".
        formats: Formats of the machine.
    """

    def __init__(self, graph: Graph, kept: Mapping[tuple[str, str], Parameters], formats: BlockFormats):
        super().__init__(plan(graph), Choices(recipe=formats))
        self.kept = kept

    def layers(self, part: Part) -> tuple[Layer, ...]:
        made = super().layers(part)
        if not isinstance(part.op, WEIGHTED):
            return made
        weight, bias = self.kept[part.node, "weight"], self.kept[part.node, "bias"]
        return tuple(replace(
            layer, mantissas=weight.mantissas.astype(layer.mantissas.dtype), bias=exact_binary16(bias, part.name),
            exponents=np.full_like(layer.exponents, self._exponent(weight, part.name))) for layer in made)

    def _exponent(self, weight: Parameters, name: str) -> int:
        fmt, _ = self.recipe.formats(name)
        if not fmt.e_min <= weight.exponent <= fmt.e_max:
            raise ValueError(f"layer {name!r}: its weights ended with exponent {weight.exponent}, which the format "
                             f"{fmt.e_min}..{fmt.e_max} does not have; choose a wider format")
        return weight.exponent


def exact_binary16(bias: Parameters, name: str) -> np.ndarray:
    """uint16[...]: the bit patterns of biases.

    Raises:
        ValueError: a bias is not a binary16 number.
    """
    bits = binary16(bias.values, f"layer {name!r}, bias")
    if (bits.view(np.float16) != bias.values).any():
        raise ValueError(f"layer {name!r}: its biases are too small for binary16")
    return bits


def trained_layers(
    graph: Graph, kept: Mapping[tuple[str, str], Parameters], formats: BlockFormats
) -> tuple[tuple[Layer, ...], dict[str, tuple[str, ...]]]:
    """The layers of the model, and the sources of those that do not just read the layer before them.

    Raises:
        ValueError: the exponent of weights is none of the format, or a bias is not a binary16 number.
    """
    return model_layers(TrainedBlocks(graph, kept, formats))


def layers_of(net: TensorNetwork, state: Checkpoint, formats: BlockFormats
              ) -> tuple[tuple[Layer, ...], dict[str, tuple[str, ...]]]:
    """The layers of the model of a network under training, and their sources; see `trained_layers`.

    Args:
        net:     The network.
        state:   Its layers, their names and the shape of a sample.
        formats: Formats of the machine.
    """
    kept = {name: parameter.golden() for name, parameter in net.parameters.items()}
    graph = drawn(state.layers, state.shape, {name: one.values for name, one in kept.items()}, state.names)
    places = {(state.names.get(layer, layer), part): one
              for name, one in kept.items() for layer, _, part in [name.rpartition(".")]}
    return trained_layers(graph, places, formats)
