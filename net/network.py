"""Runs a quantised model in golden arithmetic, which gives the bits of the machine for any tiling."""

import numpy as np
from concord.net.arithmetic.integer import IntegerProduct
from concord.net.layers.layer import Layer, Sums, Trace
from concord.net.model import INPUT, Model

#: Number of samples that `outputs` runs at once; the results of all layers are kept in memory.
TOGETHER = 500


def forward(
    model: Model, inputs: np.ndarray, lengths: np.ndarray | None = None, sums: Sums = IntegerProduct.totals
) -> list[Trace]:
    """Run a batch through every layer.

    Args:
        model:   Model whose layers are all of known kinds.
        inputs:  uint16[samples, inputs], or uint16[samples, time, inputs] where the model is recurrent.
        lengths: int[samples], time steps of each sample; all time steps by default.
        sums:    Function that computes the totals of integer products.

    Returns:
        One trace for each layer; the `outputs` of the last one are those of the network.

    Raises:
        ValueError: the number of time steps is fixed, and a sample has another one.
    """
    model.check_lengths(inputs, lengths)
    lengths = np.full(len(inputs), inputs.shape[1]) if lengths is None else np.asarray(lengths)
    made = {INPUT: Trace(outputs=np.asarray(inputs, np.uint16), hidden=inputs)}
    for layer in model.layers:
        own = model.lengths_of(layer, lengths, len(inputs))
        made[layer.name] = layer.run(entering(model, layer, made), own, sums)
    return [made[layer.name] for layer in model.layers]


def entering(model: Model, layer: Layer, made: dict[str, Trace]) -> list[np.ndarray]:
    """Inputs of a layer, from the traces by name: all time steps if it takes a sequence, else the last one."""
    traces = [made[name] for name in model.sources_of(layer)]
    return [trace.hidden if layer.sequence else trace.outputs for trace in traces]


def outputs(
    model: Model, inputs: np.ndarray, lengths: np.ndarray | None = None, sums: Sums = IntegerProduct.totals,
    together: int = TOGETHER,
) -> np.ndarray:
    """uint16[samples, outputs], the results of the network; `together` samples run at once, as `forward` does."""
    lengths = np.full(len(inputs), inputs.shape[1]) if lengths is None else np.asarray(lengths)
    parts = range(0, len(inputs), together)
    return np.concatenate([
        forward(model, inputs[at:at + together], lengths[at:at + together], sums)[-1].outputs for at in parts])


def predict(model: Model, inputs: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
    """Class of each sample, the first of its largest outputs."""
    return classes(outputs(model, inputs, lengths))


def classes(outputs: np.ndarray) -> np.ndarray:
    """Index of the largest binary16 value of each row; the first one if several are equal."""
    return np.asarray(outputs, np.uint16).view(np.float16).astype(np.float32).argmax(axis=-1)
