"""Runs a quantised model in golden arithmetic, which gives the bits of the machine for any tiling, and measures it."""

import numpy as np
from concord.net import float_network as reference
from concord.net.arithmetic.integer import IntegerProduct
from concord.net.float_network import float_network
from concord.net.graph import Graph
from concord.net.layers.layer import Layer, Sums, Trace
from concord.net.lowering.full_precision import Clip, MemoryNumbers, in_full_precision
from concord.net.model import INPUT, Model
from concord.net.ops.pointwise import Relu
from concord.net.ops.reshape import Flatten
from concord.net.ops.sequences import Last

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


def outputs_of_parts(model: Model, inputs: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
    """uint16[samples, outputs] where samples are parts of one sequence: each starts from the states that the last left.

    Raises:
        ValueError: the model keeps no state after a sample.
    """
    _check_keeps_state(model)
    lengths = np.full(len(inputs), inputs.shape[1]) if lengths is None else np.asarray(lengths)
    whole = np.concatenate([part[:length] for part, length in zip(inputs, lengths, strict=True)])[None]
    ends, total = np.cumsum(lengths) - 1, np.array([whole.shape[1]])
    made = {INPUT: Trace(outputs=whole[0, ends], hidden=whole)}
    for layer in model.layers:
        trace = layer.run(entering(model, layer, made), total, IntegerProduct.totals)
        made[layer.name] = trace if trace.hidden is None else Trace(outputs=trace.hidden[0, ends], hidden=trace.hidden)
    return made[model.layers[-1].name].outputs


def predict(model: Model, inputs: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
    """Class of each sample, the first of its largest outputs."""
    return classes(outputs(model, inputs, lengths))


def classes(outputs: np.ndarray) -> np.ndarray:
    """Index of the largest binary16 value of each row; the first one if several are equal."""
    return np.asarray(outputs, np.uint16).view(np.float16).astype(np.float32).argmax(axis=-1)


def layers_of(model: Model, numbers: MemoryNumbers = MemoryNumbers.REAL) -> dict[str, Layer]:
    """The layers of a model by name, with float64 instead of all arrays that the machine holds in fewer bits.

    Raises:
        ValueError: a layer does not hold the numbers of the float network.
    """
    graph = float_network(model)
    return {layer.name: in_full_precision(layer, graph and graph.node(layer.name), _clip(graph, layer), numbers)
            for layer in model.layers}


def _check_keeps_state(model: Model):
    """Refuse models whose next sample cannot go on where the last one ended."""
    if not model.recurrent:
        raise ValueError(f"{model.name} takes one vector at a time and has no state to keep: leave out --keep-state")
    if model.steps is not None:
        raise ValueError(f"{model.name} takes whole sequences of {model.steps} time steps and keeps no state after "
                         "them: leave out --keep-state")
    if any(layer.reverse for layer in model.layers):
        raise ValueError(f"{model.name} reads a sequence from its end, too, so that it cannot go on: leave out "
                         "--keep-state")


def _clip(graph: Graph | None, layer: Layer) -> Clip:
    """What the quantiser of a layer does for the float network."""
    node = graph and graph.node(layer.name)
    before = node and graph.source(node)
    while before and isinstance(before.op, Flatten | Last):
        before = graph.source(before)
    if not before or not isinstance(before.op, Relu):
        return Clip()
    ceiling = before.op.ceiling
    return Clip(relu=layer.clips, ceiling=np.inf if ceiling is None else ceiling)


def real_outputs(model: Model, traces: list[Trace]) -> list[np.ndarray]:
    """Results of each layer in real units, as its consumer reads them: float64[samples, outputs]."""
    results, by_name = [], {layer.name: trace for layer, trace in zip(model.layers, traces, strict=True)}
    for layer, trace in zip(model.layers, traces, strict=True):
        after = _consumer(model, layer)
        seen = None if after is None else after.real_input(by_name[after.name])
        results.append(layer.real_outputs(trace) if seen is None else seen)
    return results


def errors(model: Model, traces: list[Trace], inputs: np.ndarray, lengths: np.ndarray | None = None) -> list[float]:
    """Root mean square error of each layer against the FP32 network, relative to that of the FP32 layer's outputs."""
    pairs = zip(real_outputs(model, traces), reference.forward(model, inputs, lengths), strict=True)
    return [float(np.sqrt(np.mean((ours - fp32) ** 2) / np.mean(fp32**2))) for ours, fp32 in pairs]


def _consumer(model: Model, layer: Layer) -> Layer | None:
    """The only consumer of a layer's result, or None if it has none or several."""
    found = model.readers(layer.name)
    return found[0] if len(found) == 1 else None
