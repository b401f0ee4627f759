"""The numbers of a layer before any rounding, in the fields of the layer, for the compiler.

An array of float64 stands for an array that the machine holds in fewer bits. The quantisers R and O keep the numbers of
binary16 that the layer has: they only choose the unit of the codes, so the other numbers are made for this unit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import prod

import numpy as np
from concord.golden.lib.float16 import to_bits, to_real
from concord.net.graph import Node
from concord.net.layers.convolution import Conv, seen
from concord.net.layers.curves import ClippedLine, Leaky, Limited, TanhGelu
from concord.net.layers.layer import Layer, unchecked
from concord.net.layers.pooling import Average, BlockAverage, identity
from concord.net.layers.recurrent import BlockRecurrent, IntegerRecurrent
from concord.net.layers.rows import BlockRows, IntegerRows
from concord.net.lowering.lowering import requantization
from concord.net.ops.operator import Operator
from concord.net.ops.recurrent import Recurrence

#: Largest relative distance of the quantiser's factor R from the inverse of the step that it stands for.
_NEAR = 2.0**-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Clip:
    """What the quantiser of a layer does for the float network.

    Attributes:
        relu:    Whether it clips at 0, as the activation function of the layer before.
        ceiling: Where it clips above, as a relu6 does; infinity for nowhere.
    """

    relu: bool = False
    ceiling: float = np.inf


class MemoryNumbers(StrEnum):
    """Which numbers fill the memories."""

    REAL = "real"  #: those of the float network
    WEIGHTS = "weights"  #: weights as they are quantised; all other numbers before they were rounded to binary16
    STORED = "stored"  #: those of the machine, as real numbers


def in_full_precision(layer: Layer, node: Node | None, clip: Clip,
                      numbers: MemoryNumbers = MemoryNumbers.REAL) -> Layer:
    """A layer with float64 instead of all arrays that the machine holds in fewer bits.

    Args:
        layer:   The layer.
        node:    The node of the float network that it was quantised from, or None.
        clip:    What its quantiser does for the float network; integer layers keep it as "clip" in `real`, the smallest
            and the largest value in the unit of the codes.
        numbers: Which numbers it gets.

    Raises:
        ValueError: the layer does not hold the numbers of the float network.
    """
    if isinstance(layer, Leaky | ClippedLine | Limited | TanhGelu):
        return layer.stored() if numbers is MemoryNumbers.STORED else layer
    found = next((function for kind, function in _KINDS.items() if isinstance(layer, kind)), None)
    if found is None:
        return layer
    if numbers is MemoryNumbers.STORED:
        return _stored(layer) if isinstance(layer, IntegerRows) else layer
    if node is None:
        raise ValueError(f"layer {layer.name!r} carries no FP32 parameters, so there are no numbers in full precision: "
                         "quantise the float network again, which keeps them")
    try:
        return found(layer, node.op, clip, numbers is MemoryNumbers.WEIGHTS)
    except KeyError as error:
        raise ValueError(f"layer {layer.name!r} lacks {error} of its lowering, so there are no numbers in full "
                         "precision: quantise the float network again") from error


def _stored(layer: IntegerRows) -> IntegerRows:
    """A layer whose start does not contain the zero point of its codes."""
    changes = {"border": float(to_real(np.uint16(layer.border)))} if hasattr(layer, "border") else {}
    return unchecked(layer, **changes, start=_start(layer))


def _start(layer: IntegerRows) -> np.ndarray:
    """float64[rows], the start without what compensates for codes that are lowered by their zero point."""
    sums = layer.weights.reshape(len(layer.weights), -1).sum(1, dtype=np.int64)
    return (layer.start - layer.input_format.zero * layer.unsigned * sums).astype(np.float64)


def _integer(layer: IntegerRows, op: Operator, clip: Clip, quantized_weights: bool) -> IntegerRows:
    factor, shift = _quantizer(layer)
    made = _stored_rows(layer, factor, shift) if quantized_weights else _real_rows(layer, op, factor, shift)
    changes = dict(zip(("weights", "start", "scale", "offset"), made, strict=True))
    if hasattr(layer, "border") and layer.quant_scale is None:
        changes["border"] = float(shift[0])
    elif hasattr(layer, "border"):
        scaled = layer.border and "line" in layer.real
        changes["border"] = float(layer.line.zero[0] if scaled else to_real(np.uint16(layer.border)))
    return unchecked(layer, **changes, real={**layer.real, "clip": _ends(layer, factor, shift, clip)})


def _quantizer(layer: IntegerRows) -> tuple[np.ndarray, np.ndarray]:
    """float64[channels], the codes of what the float layer reads as its multiples plus a number: u * factor + shift.

    These are R and O, or those that the layer before applies, if the layer has none. Where the network scales its input
    ahead of the layer, R and O do that, too.
    """
    step, offset = layer.real["input"]
    ones, line = np.ones(layer.channels_in), layer.line
    if layer.quant_scale is None:
        return ones / step, ones * (-offset / step)
    factor = to_real(layer.quant_scale) / line.scale
    if (np.abs(factor * step - 1) > _NEAR).any() or layer.real["output"][0] < 0:
        raise ValueError(f"layer {layer.name!r} has codes in another unit than its float network, as a network that "
                         "was quantised elsewhere can have: it has no numbers in full precision")
    shift = 0 * ones if layer.quant_offset is None else to_real(layer.quant_offset)
    return factor, shift - factor * line.offset


def _per_column(layer: IntegerRows, values: np.ndarray) -> np.ndarray:
    """Values [channels] for each weight of a layer, in a shape that fits the weights."""
    if isinstance(layer, Conv):
        return values[seen(layer.channels, layer.channels_in, layer.groups)][..., None, None]
    return values


def _real_rows(layer: IntegerRows, op: Operator, factor: np.ndarray, shift: np.ndarray):
    """W, start, S and T of the float network, where W is in the unit of the layer's weights."""
    gain, beside = layer.real["gain"] * layer.real["input"][0], (-1, *[1] * (layer.weights.ndim - 1))
    gain = np.where(gain == 0, 1.0, gain)
    if isinstance(layer, Average):  # all channels share tiles of ones
        gain, bias = 1 / prod(op.window.size) / factor, 0.0
        rows = layer.weights
    else:
        rows, bias = op.weight.astype(np.float64) / (_per_column(layer, factor) * gain.reshape(beside)), op.bias
    moved = (rows * _per_column(layer, shift)).reshape(len(rows), -1).sum(1)
    step, offset = layer.real["output"]
    scale, constant = requantization(
        gain, bias, moved, s_in=1.0, m_in=-1.0, s_out=step, m_out=offset, p=layer.p)
    return rows, np.zeros(len(rows)), scale, constant


def _stored_rows(layer: IntegerRows, factor: np.ndarray, shift: np.ndarray):
    """W as it is quantised, the start without the zero point, and S and T before they were rounded to binary16.

    S or T that were made in another way than by the lowering stay as they are.
    """
    sums, start = layer.weights.reshape(len(layer.weights), -1).sum(1, dtype=np.int64), _start(layer)
    (s_in, m_in), (s_out, m_out) = layer.real["input"], layer.real["output"]
    gain, constant = layer.real["gain"], layer.real["constant"]
    asked = {"s_in": s_in, "s_out": s_out, "m_out": m_out, "p": layer.p}
    scale, offset = requantization(gain, constant, sums, m_in=m_in, **asked)
    apart = (constant - m_out) / s_out  # of a network that was quantised elsewhere: the start holds the rest
    one, move = factor[0], shift[0]
    if (factor != one).any() or (shift != move).any():
        return layer.weights, start, _kept(layer.scale, scale), _kept(layer.offset, offset, offset, apart)
    exact, moved = requantization(gain, constant, sums, **(asked | {"s_in": 1 / one}), m_in=-move / one)
    return (layer.weights, start, _kept(layer.scale, scale, exact),
            _kept(layer.offset, offset, moved, apart))


def _kept(stored: np.ndarray, rounded: np.ndarray, exact: np.ndarray | None = None, *others: np.ndarray) -> np.ndarray:
    """`exact` where `rounded` becomes the stored patterns, else one of the others that does, else what is stored."""
    found = to_real(stored)
    for candidate in others:
        found = np.where(_pattern(candidate) == stored, candidate, found)
    return np.where(_pattern(rounded) == stored, rounded if exact is None else exact, found)


def _pattern(values: np.ndarray) -> np.ndarray:
    return to_bits(np.asarray(values, np.float64) + 0.0)  # -0 is stored as +0


def _ends(layer: IntegerRows, factor: np.ndarray, shift: np.ndarray, clip: Clip) -> np.ndarray:
    """Smallest and largest value of the codes where their quantiser is off."""
    if np.ptp(factor) or np.ptp(shift):
        if clip.relu or np.isfinite(clip.ceiling):
            raise ValueError(f"layer {layer.name!r} clips each channel of its input at another code, which a run in "
                             "full precision cannot")
        return np.array([-np.inf, np.inf])
    return np.array([shift[0] if clip.relu else -np.inf, clip.ceiling * factor[0] + shift[0]])


def _block(layer: BlockRows, op: Operator, _clip: Clip, quantized_weights: bool) -> BlockRows:
    if isinstance(layer, BlockAverage):
        mantissa, exponent = identity(layer.weights_format)
        one = np.ldexp(float(mantissa), exponent - (layer.weights_format.bits - 1))
        return unchecked(layer, scale=np.full(layer.channels, 1 / prod(op.window.size) / one))
    weights, bias = op.weight.astype(np.float64), op.bias.astype(np.float64)
    if quantized_weights:
        return unchecked(layer, bias=_kept(layer.bias, bias))
    return unchecked(layer, mantissas=weights.reshape(layer.mantissas.shape), bias=bias)


def _integer_recurrent(
    layer: IntegerRecurrent, op: Recurrence, _clip: Clip, quantized_weights: bool
) -> IntegerRecurrent:
    step = float(layer.real["input"][0])
    entering = np.full(layer.inputs, 1 / step) if layer.input_quant_scale is None else to_real(layer.input_quant_scale)
    changes = {}
    for matrix, factor in (("input", entering), ("recurrent", to_real(layer.hidden_quant_scale))):
        unit = layer.real[f"{matrix}_steps"].reshape(-1, 1) / factor[0]
        unit = np.where(unit == 0, 1.0, unit) * np.ones_like(layer.bias, np.float64)
        scale = unit * 2.0 ** getattr(layer, f"{matrix}_p")
        if quantized_weights:
            rounded = scale * factor[0] * step if matrix == "input" else scale
            scale = _kept(getattr(layer, f"{matrix}_scale"), rounded, scale)
        else:
            weights = op.directions[0].tensors()[f"{matrix}_weights"].astype(np.float64)
            changes[f"{matrix}_weights"] = weights / (factor * unit[..., None])
        changes[f"{matrix}_scale"] = scale
        if matrix == "input" and layer.start is not None:
            changes["start"] = layer.start.astype(np.float64) if quantized_weights else (
                op.directions[0].bias.astype(np.float64) / unit)
    return unchecked(layer, **changes, **_recurrent_constants(layer, op, quantized_weights, layer.real["bias"]))


def _block_recurrent(layer: BlockRecurrent, op: Recurrence, _clip: Clip, quantized_weights: bool) -> BlockRecurrent:
    changes = {} if quantized_weights else {
        f"{matrix}_mantissas": op.directions[0].tensors()[f"{matrix}_weights"].astype(np.float64)
        for matrix in ("input", "recurrent")}
    return unchecked(layer, **changes, **_recurrent_constants(layer, op, quantized_weights, op.directions[0].bias))


def _recurrent_constants(layer, op: Recurrence, quantized_weights: bool, bias: np.ndarray) -> dict:
    """Biases and vectors of a cell in real numbers: those of the float network, or of the quantised one."""
    real = {name: value.astype(np.float64) for name, value in op.directions[0].tensors().items()}
    vectors = {name: real[name] for name in layer.vectors}
    if not quantized_weights:
        return {"bias": real["bias"], "vectors": vectors, "gate_codes": None}
    return {"bias": _kept(layer.bias, np.asarray(bias, np.float64)),
            "vectors": {name: _kept(layer.vectors[name], values) for name, values in vectors.items()}}


#: How layers of each class become real; of other classes, a layer holds no numbers.
_KINDS: dict[type[Layer], Callable[[Layer, Operator, Clip, bool], Layer]] = {
    IntegerRows: _integer, BlockRows: _block, IntegerRecurrent: _integer_recurrent, BlockRecurrent: _block_recurrent}
