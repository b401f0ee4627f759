"""A network of vectors for several samples at once: they are the pixels of an image of one row.

A machine multiplies each tile by all of them once it is there, so that tiles from memory outside the chip are loaded
once for all. No number changes: each sample has its own pixel, its own codes and its own blocks.
"""

from dataclasses import fields, replace

from concord.net.layers.convolution import Along, BlockConv, Conv
from concord.net.layers.curves import Curve, Leaky
from concord.net.layers.dense import BlockDense, Dense
from concord.net.layers.joins import Add, Concat
from concord.net.layers.layer import Layer
from concord.net.model import Model


def batched(model: Model, samples: int) -> Model:
    """The network for as many samples, an image [inputs, 1, samples] of one row.

    Raises:
        ValueError: there is no sample; or a layer is none of those that compute each sample by itself as a vector; the
            sentence names it.
    """
    if samples < 1:
        raise ValueError(f"a batch of {samples} samples: a machine takes one at least")
    if model.image is not None and max(model.image[1:]) > 1 or model.recurrent:
        kind = "sequences" if model.recurrent else "images"
        raise ValueError(f"a batch of {samples}: {model.name} takes {kind}, and samples share tiles in networks of "
                         "vectors only: leave out the batch")
    layers = tuple(_batched(layer, samples) for layer in model.layers)
    return replace(model, layers=layers, axes=None, graph=None)


def _batched(layer: Layer, samples: int) -> Layer:
    """A layer for the samples of a batch."""
    held = {one.name: getattr(layer, one.name) for one in fields(layer)}
    match layer:
        case Dense():
            return Conv(**held | {"weights": layer.weights[:, :, None, None]}, shape=(layer.inputs, 1, samples))
        case BlockDense():
            arrays = {"mantissas": layer.mantissas[:, :, None, None], "exponents": layer.exponents[:, None, None]}
            return BlockConv(**held | arrays, along=Along.CHANNELS, shape=(layer.inputs, 1, samples))
        case Concat():
            return replace(layer, sizes=tuple(size * samples for size in layer.sizes))
        case Add() | Curve() | Leaky():
            return replace(layer, inputs=layer.inputs * samples)
    raise ValueError(f"a batch of {samples}: layer {layer.name!r} ({layer.title}) does not compute each sample of a "
                     "batch by itself: leave out the batch")
