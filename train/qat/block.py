"""Any network of supported layers in block floating point: training behind its quantisers, and the model."""

from functools import cached_property

import numpy as np
import torch
from concord.net.layers.convolution import Along
from concord.net.layers.layer import Layer
from concord.net.lowering import block_lowering
from concord.net.quantize.block_recipe import BlockRecipe
from concord.train.qat.average import convolution
from concord.train.qat.block_average import BlockAverageLayer
from concord.train.qat.block_layer import BlockLayer
from concord.train.qat.graph import INPUT, Node
from concord.train.qat.modules import Kind
from concord.train.qat.native_places import entering
from concord.train.qat.network import QuantizedNetwork


class BlockNetwork(QuantizedNetwork):
    """A network whose layers are in block floating point. The recipe is a `BlockRecipe`; see `QuantizedNetwork`."""

    @cached_property
    def _places(self) -> dict[str, np.ndarray | None]:
        return entering(self.nodes, self.shapes, self.recipe.block)

    def _layer(self, node: Node, x: torch.Tensor, recipe: BlockRecipe) -> BlockLayer:
        window, places = node.window(x.shape[1:]), self._places[node.name]
        if node.kind is Kind.AVERAGE:
            return BlockAverageLayer(convolution(x.shape[1], window), x, recipe, node.name, window, places)
        along = block_lowering.choose_along(x.shape[1], getattr(node.module, "groups", 1), recipe.block)
        # A sender makes patches of the network's input; images inside the network are stored pixel by pixel.
        patch = window is not None and INPUT in node.sources and along is Along.PATCH
        return BlockLayer(node.module, x, recipe, node.name, window, places, patch)

    def _lower_layer(self, layer: BlockLayer, shape: tuple[int, ...], ranges: dict) -> Layer:
        return layer.lower(shape)
