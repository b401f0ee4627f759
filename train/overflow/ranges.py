"""Enlarging and shrinking the ranges of a layer under training.

Source: S3, first and second factor.
"""

from typing import Protocol

import numpy as np
import torch

from spec.formats import Format


class Layer(Protocol):
    """What a layer must have, as `train.dense.QuantisedLinear` does. Rows are outputs, or output channels.

    Attributes:
        scale:        float64[rows], real value of one step of the integer weights.
        weight:       Real[rows, ...], in steps / half.
        half:         2**(bits - 1).
        saturation:   Real, range of the inputs.
        offset:       Real, where that range begins.
        input_format: Of the input codes.
    """

    scale: torch.Tensor
    weight: torch.nn.Parameter
    half: float
    saturation: torch.nn.Parameter
    offset: torch.nn.Parameter
    weights_format: Format
    input_format: Format

    def integers(self) -> torch.Tensor:
        """The integer weights[rows, ...]."""


def enlarge_parameters(layer: Layer, factor: np.ndarray):
    """Enlarge the range of each row's weights by factor[rows]: the same real weights, in fewer steps.

    Below 1 it shrinks, and the integers grow.
    """
    factor = torch.from_numpy(np.asarray(factor, np.float64))
    with torch.no_grad():
        layer.scale.mul_(factor)
        layer.weight.div_(factor.to(layer.weight.dtype).reshape(-1, *[1] * (layer.weight.dim() - 1)))


def weights_used(layer: Layer) -> np.ndarray:
    """float64[rows]: the largest weight of each row, in steps, over the largest integer that there is."""
    largest = layer.weight.detach().abs().double().reshape(len(layer.scale), -1).amax(1)
    return largest.numpy() * layer.half / layer.weights_format.highest


def enlarge_inputs(layer: Layer, factor: float):
    """Enlarge the range of the inputs: the same real inputs, in fewer steps. Below 1 it shrinks."""
    with torch.no_grad():
        layer.saturation.mul_(factor)
