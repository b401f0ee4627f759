"""The layers of a model with the mantissas that training by lazy update ends with: no real number lies between them."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from concord.golden.lazy.lazy_update import Parameters
from concord.golden.lazy.tensor_network import Recurrent, named
from concord.net.graph import Graph
from concord.net.layers.layer import Layer
from concord.net.layers.recurrent import BlockRecurrent
from concord.net.lowering.rounding import binary16
from concord.net.ops.recurrent import Recurrence
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
        kept:    Parameters, by the names of nodes and of their arrays: "weight" and "bias", or of a recurrent layer
            "f.input", "f.recurrent" and "f.bias" for each gate f, and its vectors.
        formats: Formats of the machine.
    """

    def __init__(self, graph: Graph, kept: Mapping[tuple[str, str], Parameters], formats: BlockFormats):
        super().__init__(plan(graph), Choices(recipe=formats))
        self.kept = kept

    def layers(self, part: Part) -> tuple[Layer, ...]:
        made = super().layers(part)
        if isinstance(part.op, Recurrence):
            return tuple(replace(layer, **self._gates(part, layer)) for layer in made)
        if not isinstance(part.op, WEIGHTED):
            return made
        return tuple(replace(
            layer, bias=exact_binary16(self.kept[part.node, "bias"], part.name),
            **self._matrix(part, "weight", layer.mantissas, layer.exponents, "")) for layer in made)

    def _gates(self, part: Part, layer: BlockRecurrent) -> dict[str, np.ndarray]:
        """The fields of a recurrent layer with the numbers of training; each gate has exponents of its own."""
        gates, vectors = part.op.cell.gates, part.op.cell.vectors
        found = {"bias": np.stack([exact_binary16(self.kept[part.node, f"{gate.name}.bias"], part.name)
                                   for gate in gates]),
                 "vectors": {name: exact_binary16(self.kept[part.node, name], part.name) for name in vectors}}
        for kind in "input", "recurrent":
            mantissas, exponents = (getattr(layer, f"{kind}_{field}") for field in ("mantissas", "exponents"))
            one = [self._matrix(part, f"{gate.name}.{kind}", mantissas[at], exponents[at], f"{kind}_")
                   for at, gate in enumerate(gates)]
            found |= {name: np.stack([matrix[name] for matrix in one]) for name in one[0]}
        return found

    def _matrix(self, part: Part, name: str, mantissas: np.ndarray, exponents: np.ndarray, prefix: str
                ) -> dict[str, np.ndarray]:
        """The mantissas of a parameter and their exponents, in the form of those of a layer."""
        kept, (fmt, _) = self.kept[part.node, name], self.recipe.formats(part.name)
        if not fmt.e_min <= kept.exponent <= fmt.e_max:
            raise ValueError(f"layer {part.name!r}: its weights ended with exponent {kept.exponent}, which the format "
                             f"{fmt.e_min}..{fmt.e_max} does not have; choose a wider format")
        return {f"{prefix}mantissas": kept.mantissas.astype(mantissas.dtype),
                f"{prefix}exponents": np.full_like(exponents, kept.exponent)}


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
    parameters = {}
    for name, layer in named(state.layers):
        for part in layer.shapes:
            index, _, inner = part.partition(".") if isinstance(layer, Recurrent) else ("", "", part)
            parameters[state.names[f"{name}.{index}" if index else name], inner] = kept[f"{name}.{part}"]
    return trained_layers(graph, parameters, formats)
