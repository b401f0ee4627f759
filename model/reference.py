"""Runs the FP32 network that a model was quantised from, in numpy, and measures the error of each layer."""

from dataclasses import replace

import numpy as np
from concord.model.layers.layer import Layer, Trace
from concord.model.model import INPUT, Model
from concord.model.network import entering
from concord.spec.activation import Activation


def forward(model: Model, inputs: np.ndarray, lengths: np.ndarray | None = None) -> list[np.ndarray]:
    """Outputs of every layer of the FP32 network.

    Args:
        model:   Model whose layers hold the parameters of the FP32 network.
        inputs:  uint16[samples, inputs], or uint16[samples, time, inputs] if the model is recurrent.
        lengths: int[samples], time steps of each sample; all time steps by default.

    Returns:
        float64[samples, outputs] for each layer, of the last time step where it is recurrent.

    Raises:
        ValueError: a layer holds no FP32 parameters, or a sample has another number of time steps than is fixed.
    """
    model.check_lengths(inputs, lengths)
    x = np.asarray(inputs).view(np.float16).astype(np.float64)
    made = {INPUT: Trace(outputs=x, hidden=x)}
    for layer in model.layers:
        own = model.lengths_of(layer, lengths, len(x))
        trace = layer.run_real(entering(model, layer, made), own, is_relu(model, layer))
        made[layer.name] = replace(trace, outputs=np.minimum(trace.outputs, ceiling(model, layer)))
    return [made[layer.name].outputs for layer in model.layers]


def is_relu(model: Model, layer: Layer) -> bool:
    """Whether the quantiser of the only consumer is the activation function of a layer, a relu.

    A cell has its own activation functions, so that of hidden vectors it is only a quantiser.
    """
    after = _consumer(model, layer)
    plain = getattr(layer, "activation", Activation.NONE) is Activation.NONE and not (
        layer.sequence and layer.makes_sequence)
    return plain and after is not None and after.clips


def ceiling(model: Model, layer: Layer) -> float:
    """Where the float network clips the result of a layer; infinity where it does not."""
    return min((reader.ceiling for reader in model.consumers_of(layer.name)), default=np.inf)


def comparable(model: Model) -> bool:
    """Whether every layer holds the parameters of the FP32 network."""
    return all(layer.comparable for layer in model.layers)


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
    found = model.consumers_of(layer.name)
    return found[0] if len(found) == 1 else None
