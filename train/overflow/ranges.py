"""Enlarging and shrinking the ranges of a layer under training.

Source: S3, first and second factor.
"""

import numpy as np
import torch
from concord.train.qat.layer import QuantizedLayer


def enlarge_parameters(layer: QuantizedLayer, factor: np.ndarray):
    """Enlarge the range of the weights of each row by factor[rows]. The real weights stay, in fewer steps.

    A factor below 1 shrinks the range, and integers grow. No weight clips if the factor is `weights_used` or more.
    """
    layer.weights.enlarge(torch.from_numpy(np.asarray(factor, np.float64)))


def weights_used(layer: QuantizedLayer) -> np.ndarray:
    """float64[rows]: the largest weight of each row in steps, as a share of the largest integer."""
    with torch.no_grad():
        weights = layer.weights
        steps = weights.bent() * weights.per_weight(1 + weights.change.double())
        return steps.abs().amax(1).double().numpy() / weights.grid.highest


def enlarge_inputs(layer: QuantizedLayer, factor: float):
    """Enlarge the range of the inputs. The real inputs stay, in fewer steps. A factor below 1 shrinks the range."""
    with torch.no_grad():
        layer.inputs.saturation.mul_(factor)
