"""How good a network is: accuracy, and how far quantisation moves each layer."""

import numpy as np
from concord.model import network, reference
from concord.model.dataset import Samples
from concord.model.model import Model


def accuracy(outputs: np.ndarray, labels: np.ndarray) -> float:
    """Share of uint16[samples, classes] whose largest value is the label's."""
    return share(network.classes(outputs), labels)


def share(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Share of predictions that are right."""
    return float((predictions == labels).mean())


def layer_errors(model: Model, samples: Samples) -> dict[str, float]:
    """Distance of each layer from the FP32 network's, as a share of that (RMS), over the samples that are finite.

    Empty where the model carries no FP32 network, or no sample is finite.
    """
    finite = np.isfinite(samples.inputs.view(np.float16)).reshape(len(samples), -1).all(axis=1)
    if not finite.any() or not reference.comparable(model):
        return {}
    samples = samples.part(finite)
    traces = network.forward(model, samples.inputs, samples.lengths)
    found = reference.errors(model, traces, samples.inputs, samples.lengths)
    return {layer.name: error for layer, error in zip(model.layers, found, strict=True)}
