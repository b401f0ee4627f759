"""The FP32 network that a model was quantised from, in numpy: how far each layer moved."""

import numpy as np
from concord.model.cells.real import CURVES, RealOperations
from concord.model.layers import LSTM, Activation, BlockLSTM, Dense
from concord.model.model import Model
from concord.model.network import Trace


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
    results = []
    for layer, after in zip(model.layers, (*model.layers[1:], None), strict=True):
        real = getattr(layer, "real", {})
        if "fp32_bias" not in real:
            raise ValueError(f"layer {layer.name!r} carries no FP32 parameters, so it cannot be compared with them")
        if isinstance(layer, LSTM | BlockLSTM):
            sequence, result = _recurrent(layer, x, lengths)
            x = sequence if isinstance(after, LSTM | BlockLSTM) else result
        else:
            # Where the next layer's codes are unsigned, their clip at 0 is the relu.
            clipped = isinstance(after, Dense) and after.unsigned
            kind = Activation.RELU if clipped else layer.activation
            x = result = CURVES[kind](x @ real["fp32_weights"].T.astype(np.float64) + real["fp32_bias"])
        results.append(result)
    return results


def real_outputs(model: Model, traces: list[Trace]) -> list[np.ndarray]:
    """What each layer of `network.forward` means in real units, as its successor sees it: float64[samples, outputs]."""
    results = []
    for trace, after, next_trace in zip(traces, (*model.layers[1:], None), (*traces[1:], None), strict=True):
        if isinstance(after, Dense) and "input" in after.real:
            step, offset = after.real["input"]
            zero = after.input_format.zero if after.unsigned else 0
            results.append((next_trace.codes + zero) * step + offset)
        else:
            results.append(trace.outputs.view(np.float16).astype(np.float64))
    return results


def errors(model: Model, traces: list[Trace], inputs: np.ndarray, lengths: np.ndarray | None = None) -> list[float]:
    """Root mean square of each layer's distance from the FP32 network, as a share of the FP32 layer's own."""
    pairs = zip(real_outputs(model, traces), forward(model, inputs, lengths), strict=True)
    return [float(np.sqrt(np.mean((ours - fp32) ** 2) / np.mean(fp32**2))) for ours, fp32 in pairs]


def _recurrent(layer: LSTM | BlockLSTM, x, lengths) -> tuple[np.ndarray, np.ndarray]:
    """All hidden vectors and each sample's last one."""
    parameters = {key.removeprefix("fp32_"): np.asarray(value, np.float64) for key, value in layer.real.items()
                  if key.startswith("fp32_")}
    samples, time = x.shape[:2]
    lengths = np.full(samples, time) if lengths is None else np.asarray(lengths)
    states = [np.tile(state.view(np.float16).astype(np.float64), (samples, 1)) for state in layer.initial]
    sequence = np.zeros((samples, time, layer.outputs))
    for step in range(time):
        on = (lengths > step)[:, None]
        new = layer.cell.step(RealOperations(layer.cell, parameters, x[:, step]), *states)
        states = [np.where(on, *pair) for pair in zip(new, states, strict=True)]
        sequence[:, step] = states[0]
    return sequence, states[0]
