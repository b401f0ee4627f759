"""Enlarging and shrinking the ranges of a layer under training.

Source: S3, first and second factor.
"""

import numpy as np
import torch
from concord.train.qat.layer import QuantisedLayer


def enlarge_parameters(layer: QuantisedLayer, factor: np.ndarray):
    """Enlarge the range of each row's weights by factor[rows]: the same real weights, in fewer steps.

    Below 1 it shrinks, and the integers grow; weights still lie inside at `weights_used` or more.
    """
    layer.weights.enlarge(torch.from_numpy(np.asarray(factor, np.float64)))


def weights_used(layer: QuantisedLayer) -> np.ndarray:
    """float64[rows]: the largest weight of each row, in steps, over the largest integer that there is."""
    with torch.no_grad():
        weights = layer.weights
        steps = weights.bent() * weights.per_weight(1 + weights.change.double())
        return steps.abs().amax(1).double().numpy() / weights.grid.highest


def enlarge_inputs(layer: QuantisedLayer, factor: float):
    """Enlarge the range of the inputs: the same real inputs, in fewer steps. Below 1 it shrinks."""
    with torch.no_grad():
        layer.inputs.saturation.mul_(factor)
