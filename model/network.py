"""A quantised model in golden arithmetic: what the machine returns, whatever the tiling."""

import numpy as np
from concord.model.arithmetic.integer import IntegerProduct
from concord.model.layers.layer import Layer, Sums, Trace
from concord.model.model import INPUT, Model

#: Samples that `outputs` runs at once: all that layers make of them is held.
TOGETHER = 500


def forward(
    model: Model, inputs: np.ndarray, lengths: np.ndarray | None = None, sums: Sums = IntegerProduct.totals
) -> list[Trace]:
    """Run a batch through every layer.

    Args:
        model:   Its layers are all of known kinds.
        inputs:  uint16[samples, inputs], or uint16[samples, time, inputs] where the model is recurrent.
        lengths: int[samples], time steps of each sample; all of them by default.
        sums:    Computes the totals of integer products.

    Returns:
        One trace for each layer; the last one's `outputs` are the network's.
    """
    lengths = np.full(len(inputs), inputs.shape[1]) if lengths is None else np.asarray(lengths)
    made = {INPUT: Trace(outputs=np.asarray(inputs, np.uint16), hidden=inputs)}
    for layer in model.layers:
        made[layer.name] = layer.run(entering(model, layer, made), lengths, sums)
    return [made[layer.name] for layer in model.layers]


def entering(model: Model, layer: Layer, made: dict[str, Trace]) -> list[np.ndarray]:
    """What enters a layer, of the traces by name: all time steps where it takes a sequence, else the last one."""
    traces = [made[name] for name in model.sources_of(layer)]
    return [trace.hidden if layer.sequence else trace.outputs for trace in traces]


def outputs(
    model: Model, inputs: np.ndarray, lengths: np.ndarray | None = None, sums: Sums = IntegerProduct.totals,
    together: int = TOGETHER,
) -> np.ndarray:
    """uint16[samples, outputs]: the network's results, `together` samples at a time. Arguments as in `forward`."""
    lengths = np.full(len(inputs), inputs.shape[1]) if lengths is None else np.asarray(lengths)
    parts = range(0, len(inputs), together)
    return np.concatenate([
        forward(model, inputs[at:at + together], lengths[at:at + together], sums)[-1].outputs for at in parts])


def predict(model: Model, inputs: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
    """The class of each sample: the first of its largest outputs."""
    return classes(outputs(model, inputs, lengths))


def classes(outputs: np.ndarray) -> np.ndarray:
    """The index of each row's largest binary16 value, the first where several are equal."""
    return np.asarray(outputs, np.uint16).view(np.float16).astype(np.float32).argmax(axis=-1)
