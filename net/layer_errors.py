"""Measures the error of each layer of a model against the float network that it was quantised from."""

import numpy as np
from concord.net.float_network import forward
from concord.net.layers.layer import Layer, Trace
from concord.net.model import Model


def _real_outputs(model: Model, traces: list[Trace]) -> list[np.ndarray]:
    """Results of each layer in real units, as its consumer reads them: float64[samples, outputs]."""
    results, by_name = [], {layer.name: trace for layer, trace in zip(model.layers, traces, strict=True)}
    for layer, trace in zip(model.layers, traces, strict=True):
        after = _consumer(model, layer)
        seen = None if after is None else after.real_input(by_name[after.name])
        results.append(layer.real_outputs(trace) if seen is None else seen)
    return results


def errors(model: Model, traces: list[Trace], inputs: np.ndarray, lengths: np.ndarray | None = None) -> list[float]:
    """Root mean square error of each layer against the FP32 network, relative to that of the FP32 layer's outputs."""
    pairs = zip(_real_outputs(model, traces), forward(model, inputs, lengths), strict=True)
    return [float(np.sqrt(np.mean((ours - fp32) ** 2) / np.mean(fp32**2))) for ours, fp32 in pairs]


def _consumer(model: Model, layer: Layer) -> Layer | None:
    """The only consumer of a layer's result, or None if it has none or several."""
    found = model.readers(layer.name)
    return found[0] if len(found) == 1 else None
