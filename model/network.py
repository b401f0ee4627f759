"""A quantised model in golden arithmetic: what the machine returns, whatever the tiling."""

from dataclasses import dataclass

import numpy as np
from concord.golden.lib import float16
from concord.golden.mfu import activation
from concord.golden.mvm import quantizer
from concord.model import block_conv, images, products
from concord.model.block_conv import BlockConv
from concord.model.cells.golden import BlockOperations, IntegerOperations
from concord.model.image_layers import Add, Concat, Conv, Pool
from concord.model.layers import LSTM, BlockDense, BlockLSTM, Dense, Layer
from concord.model.model import INPUT, Model
from concord.spec.formats import Format

#: Samples that `outputs` runs at once: all that layers make of them is held.
TOGETHER = 500


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Trace:
    """What one layer returned for a batch.

    Attributes:
        outputs: uint16[samples, outputs], of the last time step where the layer is recurrent.
        codes:   int64[samples, inputs], the integer codes that entered the product (of the last time step), padding
            among them, or None.
        hidden:  uint16[samples, time, outputs], every step of a recurrent layer (zero behind a sample's end), or None.
        states:  uint16[samples, outputs] of each state of a recurrent layer after the last step, or None.
    """

    outputs: np.ndarray
    codes: np.ndarray | None = None
    hidden: np.ndarray | None = None
    states: list[np.ndarray] | None = None


def forward(model: Model, inputs: np.ndarray, lengths: np.ndarray | None = None) -> list[Trace]:
    """Run a batch through every layer.

    Args:
        model:   Its layers are all of known kinds.
        inputs:  uint16[samples, inputs], or uint16[samples, time, inputs] where the model is recurrent.
        lengths: int[samples], time steps of each sample; all of them by default.

    Returns:
        One trace for each layer; the last one's `outputs` are the network's.
    """
    if lengths is None:
        lengths = np.full(len(inputs), inputs.shape[1])
    traces, made = [], {INPUT: np.asarray(inputs, np.uint16)}
    for layer, after in zip(model.layers, (*model.layers[1:], None), strict=True):
        trace = run(layer, [made[name] for name in model.sources_of(layer)], np.asarray(lengths))
        traces.append(trace)
        made[layer.name] = trace.hidden if isinstance(after, LSTM | BlockLSTM) else trace.outputs
    return traces


def run(layer: Layer, x: list[np.ndarray], lengths: np.ndarray) -> Trace:
    """One layer on what enters it."""
    match layer:
        case Dense() | BlockDense():
            return dense(layer, *x)
        case LSTM() | BlockLSTM():
            return recurrent(layer, *x, lengths)
        case Conv():
            return convolution(layer, *x)
        case BlockConv():
            return Trace(outputs=block_conv.run(layer, *x))
        case Pool():
            return Trace(outputs=activation.apply(layer.activation, images.pool(layer, *x)))
        case Add():
            return Trace(outputs=activation.apply(layer.activation, float16.add(*x)))
        case Concat():
            return Trace(outputs=np.concatenate(x, axis=1))
    raise ValueError(f"layer {layer.name!r} is of the unknown kind {layer.kind!r}; golden cannot run it")


def outputs(model: Model, inputs: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
    """uint16[samples, outputs]: the network's results, some samples at a time. Arguments as in `forward`."""
    lengths = np.full(len(inputs), inputs.shape[1]) if lengths is None else lengths
    parts = range(0, len(inputs), TOGETHER)
    return np.concatenate([
        forward(model, inputs[at:at + TOGETHER], lengths[at:at + TOGETHER])[-1].outputs for at in parts])


def predict(model: Model, inputs: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
    """The class of each sample: the first of its largest outputs."""
    return classes(outputs(model, inputs, lengths))


def classes(outputs: np.ndarray) -> np.ndarray:
    """The index of each row's largest binary16 value, the first where several are equal."""
    return np.asarray(outputs, np.uint16).view(np.float16).astype(np.float32).argmax(axis=-1)


def dense(layer: Dense | BlockDense, x: np.ndarray) -> Trace:
    """One dense layer on uint16[samples, inputs]."""
    if isinstance(layer, BlockDense):
        product = products.block_product(
            [(layer.mantissas, layer.exponents, x)], layer.weights_format, layer.input_format, layer.block
        )
        return Trace(outputs=activation.apply(layer.activation, float16.add(product, layer.bias)))
    codes = dense_codes(layer, x)
    return Trace(outputs=dense_outputs(layer, dense_totals(layer, codes)), codes=codes)


def dense_codes(layer: Dense, x: np.ndarray) -> np.ndarray:
    """The integer codes int64[samples, inputs] that enter the product."""
    return _codes(products.affine(x, layer.quant_scale, layer.quant_offset), layer.input_format, layer.unsigned)


def dense_totals(layer: Dense, codes: np.ndarray) -> np.ndarray:
    """start + weights @ codes, exactly."""
    return products.integer_sums(layer.weights, codes) + layer.start


def dense_outputs(layer: Dense, totals: np.ndarray) -> np.ndarray:
    """What follows the product: uint16[samples, outputs] of its totals."""
    product = float16.from_integer(totals, layer.p)
    return activation.apply(layer.activation, float16.add(float16.mul(product, layer.scale), layer.offset))


def convolution(layer: Conv, x: np.ndarray) -> Trace:
    """One convolution on uint16[samples, inputs]."""
    around = (0, 0), (0, 0), (layer.padding, layer.padding), (layer.padding, layer.padding)
    padded = np.pad(x.reshape(len(x), *layer.shape), around, constant_values=np.uint16(layer.border))
    scale, offset = (None if value is None else value[:, None, None] for value in (layer.quant_scale,
                                                                                   layer.quant_offset))
    codes = _codes(products.affine(padded, scale, offset), layer.input_format, layer.unsigned)
    largest = int(np.abs(layer.weights.astype(np.int64)).sum(axis=(1, 2, 3)).max()) * layer.input_format.levels
    total = images.convolve(layer.weights, codes, layer.stride, layer.groups, largest)
    product = float16.from_integer(total + layer.start[:, None, None], layer.p)
    y = float16.add(float16.mul(product, layer.scale[:, None, None]), layer.offset[:, None, None])
    return Trace(outputs=activation.apply(layer.activation, y).reshape(len(x), -1), codes=codes.reshape(len(x), -1))


def recurrent(layer: LSTM | BlockLSTM, x: np.ndarray, lengths: np.ndarray) -> Trace:
    """One recurrent layer on uint16[samples, time, inputs]; a sample keeps its state when its sequence has ended."""
    samples, time = x.shape[:2]
    states = [np.tile(state, (samples, 1)) for state in layer.initial]
    operations = IntegerOperations if isinstance(layer, LSTM) else BlockOperations
    hidden = np.zeros((samples, time, layer.outputs), np.uint16)
    codes = np.zeros((samples, layer.inputs), np.int64)
    for step in range(time):
        on = np.flatnonzero(lengths > step)
        ops = operations(layer, x[on, step])
        for state, new in zip(states, layer.cell.step(ops, *(state[on] for state in states)), strict=True):
            state[on] = new
        hidden[on, step] = states[0][on]
        if ops.codes is not None:
            codes[on] = ops.codes
    return Trace(outputs=states[0], codes=codes if isinstance(layer, LSTM) else None, hidden=hidden, states=states)


def _codes(x: np.ndarray, fmt: Format, unsigned: bool) -> np.ndarray:
    return quantizer.quantize_integer(x, fmt, unsigned=unsigned)
