"""A quantised model in golden arithmetic: what the machine returns, whatever the tiling."""

from dataclasses import dataclass

import numpy as np
from concord.golden.lib import float16
from concord.golden.mfu import activation
from concord.golden.mvm import quantizer
from concord.model import block_conv, images
from concord.model.block_conv import BlockConv
from concord.model.image_layers import Add, Concat, Conv, Pool
from concord.model.layers import GATES, LSTM, BlockDense, BlockLSTM, Dense, Layer
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
        cell:    uint16[samples, outputs], the cell after the last step, or None.
    """

    outputs: np.ndarray
    codes: np.ndarray | None = None
    hidden: np.ndarray | None = None
    cell: np.ndarray | None = None


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
        product = _block_product(
            [(layer.mantissas, layer.exponents, x)], layer.weights_format, layer.input_format, layer.block
        )
        return Trace(outputs=activation.apply(layer.activation, float16.add(product, layer.bias)))
    codes = dense_codes(layer, x)
    return Trace(outputs=dense_outputs(layer, dense_totals(layer, codes)), codes=codes)


def dense_codes(layer: Dense, x: np.ndarray) -> np.ndarray:
    """The integer codes int64[samples, inputs] that enter the product."""
    return _codes(_affine(x, layer.quant_scale, layer.quant_offset), layer.input_format, layer.unsigned)


def dense_totals(layer: Dense, codes: np.ndarray) -> np.ndarray:
    """start + weights @ codes, exactly."""
    return _integer_sums(layer.weights, codes) + layer.start


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
    codes = _codes(_affine(padded, scale, offset), layer.input_format, layer.unsigned)
    largest = int(np.abs(layer.weights.astype(np.int64)).sum(axis=(1, 2, 3)).max()) * layer.input_format.levels
    total = images.convolve(layer.weights, codes, layer.stride, layer.groups, largest)
    product = float16.from_integer(total + layer.start[:, None, None], layer.p)
    y = float16.add(float16.mul(product, layer.scale[:, None, None]), layer.offset[:, None, None])
    return Trace(outputs=activation.apply(layer.activation, y).reshape(len(x), -1), codes=codes.reshape(len(x), -1))


def recurrent(layer: LSTM | BlockLSTM, x: np.ndarray, lengths: np.ndarray) -> Trace:
    """One recurrent layer on uint16[samples, time, inputs]; a sample keeps its state when its sequence has ended."""
    samples, time = x.shape[:2]
    h, c = (np.tile(state, (samples, 1)) for state in (layer.initial_hidden, layer.initial_cell))
    hidden = np.zeros((samples, time, layer.outputs), np.uint16)
    codes = np.zeros((samples, layer.inputs), np.int64)
    for step in range(time):
        on = np.flatnonzero(lengths > step)
        gates, step_codes = _gates(layer, x[on, step], h[on])
        h[on], c[on] = _cell(_outputs(layer, gates), c[on])
        hidden[on, step] = h[on]
        if step_codes is not None:
            codes[on] = step_codes
    return Trace(outputs=h, codes=codes if isinstance(layer, LSTM) else None, hidden=hidden, cell=c)


def _gates(layer: LSTM | BlockLSTM, x: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Gates before their activation, uint16[samples, 4, outputs], and the codes of x."""
    if isinstance(layer, BlockLSTM):
        parts = [
            (_tall(layer.input_mantissas), _tall(layer.input_exponents), x),
            (_tall(layer.recurrent_mantissas), _tall(layer.recurrent_exponents), h),
        ]
        product = _block_product(parts, layer.weights_format, layer.input_format, layer.block)
        return float16.add(product.reshape(-1, 4, layer.outputs), layer.bias), None
    codes = _codes(_affine(x, layer.input_quant_scale, None), layer.input_format, unsigned=False)
    hidden_codes = _codes(_affine(h, layer.hidden_quant_scale, None), layer.input_format, unsigned=False)
    a_w = _integer_product(_tall(layer.input_weights), codes, layer.input_p).reshape(-1, 4, layer.outputs)
    a_r = _integer_product(_tall(layer.recurrent_weights), hidden_codes, layer.recurrent_p).reshape(a_w.shape)
    u = float16.add(float16.mul(a_w, layer.input_scale), layer.bias)
    return float16.add(float16.mul(a_r, layer.recurrent_scale), u), codes


def _outputs(layer: LSTM | BlockLSTM, gates: np.ndarray) -> list[np.ndarray]:
    """f, i, o and j."""
    outputs = [(activation.tanh if gate == "j" else activation.sigmoid)(gates[:, k]) for k, gate in enumerate(GATES)]
    if isinstance(layer, LSTM) and layer.gate_bits:
        centres = [np.float16(layer.centres[gate]).view(np.uint16) for gate in GATES]
        outputs = [float16.sub(float16.add(y, c), c) for y, c in zip(outputs, centres, strict=True)]
    return outputs


def _cell(outputs: list[np.ndarray], c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The new h and c."""
    f, i, o, j = outputs
    c = float16.add(float16.mul(f, c), float16.mul(i, j))
    return float16.mul(o, activation.tanh(c)), c


def _tall(stacked: np.ndarray) -> np.ndarray:
    """Stack the gates' rows into one matrix."""
    return stacked.reshape(-1, stacked.shape[-1])


def _affine(x: np.ndarray, scale: np.ndarray | None, offset: np.ndarray | None) -> np.ndarray:
    if scale is not None:
        x = float16.mul(x, scale)
    return x if offset is None else float16.add(x, offset)


def _codes(x: np.ndarray, fmt: Format, unsigned: bool) -> np.ndarray:
    return quantizer.quantize_integer(x, fmt, unsigned=unsigned)


def _integer_product(weights: np.ndarray, codes: np.ndarray, p: int) -> np.ndarray:
    """binary16((weights @ codes) * 2**-p), uint16[samples, rows]."""
    return float16.from_integer(_integer_sums(weights, codes), p)


def _integer_sums(weights: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """weights @ codes, int64[samples, rows]."""
    return (codes.astype(np.float64) @ weights.T.astype(np.float64)).astype(np.int64)  # exact: far below 2**53


def _block_product(parts, weights_format: Format, input_format: Format, block: int) -> np.ndarray:
    """The exact sum over blocks of (mantissas, exponents, x), rounded once to binary16, uint16[samples, rows].

    Sums of blocks move left to the smallest exponent of all, so that nothing is dropped; Python integers take over
    where 62 bits do not hold them.
    """
    sums, weights = [], []
    for mantissas, exponents, x in parts:
        x_mantissas, x_exponents = quantizer.quantize_block(quantizer.split(x, block), input_format)
        operands = (np.asarray(a, np.float64) for a in (quantizer.split(mantissas, block), x_mantissas))
        sums.append(np.einsum("rcn,scn->src", *operands, optimize=True).astype(np.int64))
        weights.append(exponents.astype(np.int64) + x_exponents[:, None])
    sums, weights = np.concatenate(sums, axis=2), np.concatenate(weights, axis=2)
    lowest = int(weights.min())
    shifts = weights - lowest
    needed = int(np.abs(sums).max()).bit_length() + int(shifts.max()) + sums.shape[2].bit_length()
    if needed > 62:
        sums, shifts = sums.astype(object), shifts.astype(object)
    total = (sums << shifts).sum(axis=2)
    return float16.from_integer(total, (weights_format.bits - 1) + (input_format.bits - 1) - lowest)
