"""Quality of a network: its accuracy, and the error that quantisation causes in each layer."""

import numpy as np
from concord.model import network, reference
from concord.model.data.samples import Samples
from concord.model.model import Model


def accuracy(outputs: np.ndarray, labels: np.ndarray) -> float:
    """Share of samples whose largest output, of uint16[samples, classes], is that of the label."""
    return share(network.classes(outputs), labels)


def share(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Share of predictions that are right."""
    return float((predictions == labels).mean())


def layer_errors(model: Model, samples: Samples) -> dict[str, float]:
    """RMS error of each layer relative to the FP32 network, over the samples that are finite.

    The result is empty if the model file has no FP32 network, or no sample is finite.
    """
    finite = np.isfinite(samples.inputs.view(np.float16)).reshape(len(samples), -1).all(axis=1)
    if not finite.any() or not reference.comparable(model):
        return {}
    samples = samples.part(finite)
    traces = network.forward(model, samples.inputs, samples.lengths)
    found = reference.errors(model, traces, samples.inputs, samples.lengths)
    return {layer.name: error for layer, error in zip(model.layers, found, strict=True)}
