"""The layers of a model before any rounding."""

import numpy as np
from concord.model import reference
from concord.model.layers.layer import Layer
from concord.model.lowering.full_precision import Clip, Numbers, in_full_precision
from concord.model.model import INPUT, Model
from concord.spec.activation import Activation


def layers_of(model: Model, numbers: Numbers = Numbers.REAL) -> dict[str, Layer]:
    """The layers of a model by name, with float64 in place of all arrays that the machine holds in fewer bits.

    Raises:
        ValueError: a layer does not hold the numbers of the float network.
    """
    return {layer.name: in_full_precision(layer, _clip(model, layer), numbers) for layer in model.layers}


def _clip(model: Model, layer: Layer) -> Clip:
    """What the quantiser of a layer does for the float network."""
    source = model.sources_of(layer)[0]
    if source == INPUT:
        return Clip()
    before = next(one for one in model.layers if one.name == source)
    relu = reference.is_relu(model, before) or getattr(before, "activation", None) is Activation.RELU
    ceiling = reference.ceiling(model, before)
    return Clip(relu=layer.clips and relu, ceiling=ceiling if layer.ceiling < np.inf else np.inf)
