"""The FP32 network that a model was quantised from, in numpy: how far each layer moved."""

import numpy as np
from concord.model.layers.layer import Layer, Trace
from concord.model.model import INPUT, Model
from concord.model.network import entering


def forward(model: Model, inputs: np.ndarray, lengths: np.ndarray | None = None) -> list[np.ndarray]:
    """Outputs of every layer of the FP32 network.

    Args:
        model:   Its layers carry the FP32 network's parameters.
        inputs:  As in `network.forward`.
        lengths: As in `network.forward`.

    Returns:
        float64[samples, outputs] for each layer, of the last time step where it is recurrent.

    Raises:
        ValueError: a layer carries none.
    """
    x = np.asarray(inputs).view(np.float16).astype(np.float64)
    made = {INPUT: Trace(outputs=x, hidden=x)}
    for layer in model.layers:
        after = _consumer(model, layer)
        relu = after is not None and after.clips
        made[layer.name] = layer.run_real(entering(model, layer, made), lengths, relu)
    return [made[layer.name].outputs for layer in model.layers]


def comparable(model: Model) -> bool:
    """Whether every layer carries what the FP32 network needs."""
    return all(layer.comparable for layer in model.layers)


def _real_outputs(model: Model, traces: list[Trace]) -> list[np.ndarray]:
    """What each layer of `network.forward` means in real units, as its consumer sees it: float64[samples, outputs]."""
    results, by_name = [], {layer.name: trace for layer, trace in zip(model.layers, traces, strict=True)}
    for layer, trace in zip(model.layers, traces, strict=True):
        after = _consumer(model, layer)
        seen = None if after is None else after.real_input(by_name[after.name])
        results.append(trace.outputs.view(np.float16).astype(np.float64) if seen is None else seen)
    return results


def errors(model: Model, traces: list[Trace], inputs: np.ndarray, lengths: np.ndarray | None = None) -> list[float]:
    """Root mean square of each layer's distance from the FP32 network, as a share of the FP32 layer's own."""
    pairs = zip(_real_outputs(model, traces), forward(model, inputs, lengths), strict=True)
    return [float(np.sqrt(np.mean((ours - fp32) ** 2) / np.mean(fp32**2))) for ours, fp32 in pairs]


def _consumer(model: Model, layer: Layer) -> Layer | None:
    """The one layer that reads a layer's result; None where there are none or several."""
    found = model.consumers_of(layer.name)
    return found[0] if len(found) == 1 else None
