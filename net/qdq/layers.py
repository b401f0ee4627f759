"""The integers and scales of one layer of a network that is quantised already, as a layer of the model."""

from dataclasses import dataclass, replace
from math import prod

import numpy as np
from concord.net.graph import Node
from concord.net.layers.convolution import Conv
from concord.net.layers.dense import Dense
from concord.net.layers.pooling import Average
from concord.net.lowering import image_lowering, lowering
from concord.net.lowering.rounding import MOST_SHIFT, SMALLEST, binary16
from concord.net.ops.operator import Operator
from concord.net.ops.pooling import GlobalAverage
from concord.net.ops.weighted import Convolution, Linear, Weighted
from concord.net.qdq.codes import Multiples, OperandCodes, fraction_of, held, power_of_two
from concord.net.qdq.graph import Identity
from concord.net.qdq.plan import ANEW, HalfTensor, Inexact, PlannedLayer
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format

LARGEST = 65504.0  #: Largest number of binary16.
NEAR = 2.0**-22  #: Relative error that float32 leaves to the product of an integer and a scale.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class IntegerWeights:
    """The weights of a layer in integers.

    Attributes:
        integers: int64[outputs, channels / groups, ...], without zero point.
        scale:    float64[outputs].
        bias:     float64[outputs].
    """

    integers: np.ndarray
    scale: np.ndarray
    bias: np.ndarray


def weights_of(node: Node, shape: tuple[int, ...]) -> IntegerWeights:
    """The integers of a layer's weights; those of an average over an image of this shape are 1."""
    op = node.op
    if isinstance(op, Weighted):
        integers = np.rint(op.weight / op.grid.scale).astype(np.int64)
        return IntegerWeights(integers=integers, scale=op.grid.scale.reshape(len(integers), -1)[:, 0],
                              bias=op.bias.astype(np.float64))
    size = shape[1:] if isinstance(op, GlobalAverage) else op.window.size
    ones, channels = np.ones((shape[0], 1, *size)), shape[0]
    return IntegerWeights(integers=ones.astype(np.int64), scale=np.full(channels, 1 / prod(size)),
                          bias=np.zeros(channels))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class KeptLayer:
    """A layer of the model.

    Attributes:
        layer:  The layer.
        inexact: Why its bits may differ from those of its file, a clause; "" if they do not.
        gives:  What binary16 holds of its result in real units, if that is known.
    """

    layer: Dense | Conv
    inexact: str
    gives: Multiples | None


def product(
    planned: PlannedLayer, source: HalfTensor, codes: OperandCodes, reads: Multiples | None,
    answers: OperandCodes | None, in_steps: bool, weights_format: Format, images: bool, name: str,
) -> KeptLayer:
    """The layer of a product.

    Args:
        planned:        What is known of it.
        source:         The tensor that its quantiser reads.
        codes:          Operand codes of this quantiser.
        reads:          What binary16 holds of this tensor in real units, if that is known.
        answers:        Operand codes in whose steps it answers; None for real units.
        in_steps:       Whether what it reads is in steps of `codes`.
        weights_format: Format of the machine's weights.
        images:         Whether the network has images.
        name:           Name of the layer.

    Raises:
        Refused: weights do not fit the format, or a scale is out of the range of binary16.
    """
    node, given = planned.node, weights_of(planned.node, source.shape)
    rows = given.integers.reshape(len(given.integers), -1)
    _check_weights(rows, weights_format)
    unit, sums = codes.step * given.scale, rows.sum(axis=1)
    bias, constant = _bias(given.bias, unit, planned)
    start = bias - codes.stored * sums
    step, offset = (1.0, 0.0) if answers is None else answers.output
    real, shift = unit * planned.gain / step, (constant - offset) / step
    p = _right_shift(real, lowering.right_shift(rows, start, codes.fmt, codes.unsigned))
    ones = not isinstance(node.op, Weighted)
    dense = Dense(
        name=name, weights_format=image_lowering.ONES if ones else weights_format, input_format=codes.fmt,
        unsigned=codes.unsigned, weights=rows.astype(np.int16), start=start, p=p,
        scale=binary16(real * 2.0**p, f"layer {name!r}, scale"),
        offset=binary16(shift, f"layer {name!r}, offset"),
        activation=_activation(planned, answers),
        float_operator=_float_operator(planned) if answers is None or not answers.turned or not answers.first else None,
        real={"gain": given.scale * planned.gain, "constant": constant,
              "input": np.array([codes.step, -codes.step * codes.shift]), "output": np.array([step, offset])})
    layer = _with_geometry(dense, node, source, given, images)
    layer = _reads(layer, source, codes, _quantizer(source, codes, in_steps))
    why, gives = _exact(rows, start, codes, real, shift, answers, planned)
    return KeptLayer(layer=layer, inexact=_reading(source, codes, reads, in_steps) or why, gives=gives)


def _check_weights(rows: np.ndarray, fmt: Format):
    low, high = int(rows.min()), int(rows.max())
    if low < fmt.lowest or high > fmt.highest:
        raise Inexact(f"its weights are the integers {low}..{high}, and the machine's {fmt.lowest}..{fmt.highest}; "
                      f"{ANEW}")


def _bias(bias: np.ndarray, unit: np.ndarray, planned: PlannedLayer) -> tuple[np.ndarray, np.ndarray]:
    """Biases that are multiples of one step of the product, in steps; and all others as constants behind it."""
    steps = bias / unit
    whole = np.rint(steps)
    fits = (np.abs(steps - whole) <= NEAR * np.maximum(1, np.abs(whole))) & (np.abs(whole) < 1 << 31)
    return (np.where(fits, whole, 0).astype(np.int64),
            planned.constant + planned.gain * np.where(fits, 0.0, bias))


def _right_shift(real: np.ndarray, least: int) -> int:
    """The smallest right shift from `least` with which all scales behind it are normal numbers of binary16.

    Raises:
        Refused: there is none.
    """
    magnitudes = np.abs(real[real != 0])
    for p in range(least, max(least, MOST_SHIFT) + 1):
        scales = magnitudes * 2.0**p
        if (scales >= SMALLEST).all() and (scales <= LARGEST).all():
            return p
    raise Inexact(f"its scale {magnitudes.min():.2g}, the product of the scales of input and weights over that of the "
                  f"output, is no normal number of binary16; {ANEW}")


def _quantizer(source: HalfTensor, codes: OperandCodes, in_steps: bool) -> tuple[np.ndarray, np.ndarray] | None:
    """R and O of each channel of a tensor, in real numbers; None where it is in steps of the codes.

    Raises:
        Refused: binary16 does not hold them.
    """
    ones = np.ones(source.shape[0])
    if in_steps:
        return (-ones, ones * (codes.last + codes.shift)) if codes.turned else None
    scale, offset = (ones, 0 * ones) if source.scale is None else (source.scale, source.offset)
    scale, offset = scale / codes.step * ones, codes.shift + offset / codes.step * ones
    magnitudes = np.abs(scale)
    if magnitudes.min() < SMALLEST or max(magnitudes.max(), np.abs(offset).max()) > LARGEST:
        raise Inexact(f"its input in steps of {codes.step:g} needs a factor of {scale[0]:.2g}, which is no normal "
                      f"number of binary16; {ANEW}")
    return scale, offset


def _activation(planned: PlannedLayer, answers: OperandCodes | None) -> Activation:
    """The activation function; the clip of the operand codes that follow does the work of a relu."""
    if answers is None:
        return planned.activation
    return Activation.RELU if answers.relu or answers.turned else Activation.NONE


def _float_operator(planned: PlannedLayer) -> Operator:
    """The same layer without quantisers."""
    op = planned.node.op
    return replace(op, grid=None).scaled(planned.gain, planned.constant) if isinstance(op, Weighted) else op


def _with_geometry(dense: Dense, node: Node, source: HalfTensor, given: IntegerWeights, images: bool) -> Dense | Conv:
    """The same layer with its geometry."""
    op = node.op
    if isinstance(op, Linear) and not (images and isinstance(op, Identity)):
        return dense
    if isinstance(op, Linear):  # an average of a single pixel takes fewer native tiles than an identity matrix
        channels = source.shape[0]
        ones = replace(dense, weights=np.ones((channels, 1), np.int16), weights_format=image_lowering.ONES)
        return image_lowering.convolution(ones, shape=(channels, 1, 1), kernels=(channels, 1, 1, 1), kind=Average,
                                          groups=channels)
    kind, geometry = (Conv if isinstance(op, Convolution) else Average), {}
    if not isinstance(op, GlobalAverage):
        over = op.window
        geometry = {"stride": over.stride, "padding": over.padding, "dilation": over.dilation}
    groups = op.groups if isinstance(op, Convolution) else source.shape[0]
    return image_lowering.convolution(dense, shape=tuple(source.shape), kernels=given.integers.shape, kind=kind,
                                      groups=groups, **geometry)


def _reads(layer: Dense | Conv, source: HalfTensor, codes: OperandCodes, quantizer: tuple[np.ndarray, np.ndarray] | None
           ) -> Dense | Conv:
    """The same layer with R and O of each of its channels, and the padding that they make a zero.

    Raises:
        Refused: channels need different padding.
    """
    if quantizer is None:
        made, zero = layer, codes.shift
    else:
        scale, offset = (np.repeat(value, layer.channels_in // len(value)) for value in quantizer)
        made = replace(layer, quant_scale=binary16(scale, f"layer {layer.name!r}, quant_scale"),
                       quant_offset=binary16(offset, f"layer {layer.name!r}, quant_offset")
                       if offset.any() else None, real={**layer.real, **_line(source, layer.channels_in)})
        zero = ((codes.shift - offset) / scale)[0]
    if isinstance(layer, Conv):
        made = replace(made, border=int(binary16(zero, f"layer {layer.name!r}, border")))
        if any(layer.padding) and (made.border_codes != codes.stored).any():
            raise Inexact("its channels have different scales or offsets ahead of their quantiser, so no padding is "
                          f"zero in all of them; scale the inputs in the data, or {ANEW}")
    return made


def _line(source: HalfTensor, channels: int) -> dict[str, np.ndarray]:
    """What the network makes of its input ahead of a quantiser, as a layer of so many channels records it."""
    if source.scale is None:
        return {}
    repeated = (np.repeat(value * np.ones(source.shape[0]), channels // source.shape[0])
                for value in (source.scale, source.offset))
    return {"line": np.array([*repeated])}


def _reading(source: HalfTensor, codes: OperandCodes, reads: Multiples | None, in_steps: bool) -> str:
    """Why the codes of what a layer reads may differ, a clause; "" if they do not."""
    fraction = None if reads is None else reads.fraction
    if not power_of_two(codes.step):
        return f"{codes.step:g}, the scale of its input, is no power of two"
    if source.scale is not None:
        return "the scale and offset of the inputs are rounded to binary16"
    if not in_steps:
        if source.layer is not None and reads is None:
            return ""  # the layer that gives it has said so
        if codes.shift and (source.layer is None or not held(
                fraction - fraction_of(codes.step), codes.limit + abs(codes.shift))):
            return f"{codes.shift:g} is added to its input, which is rounded to binary16 once more"
        fraction = 1 if source.layer is None else fraction - fraction_of(codes.step)
    if codes.shift % 2 and (fraction is None or fraction > 0):
        return f"its input moves by {codes.shift}, an odd number, so that halves are rounded to the other neighbour"
    return ""


def _exact(rows: np.ndarray, start: np.ndarray, codes: OperandCodes, real: np.ndarray, shift: np.ndarray,
           answers: OperandCodes | None, planned: PlannedLayer) -> tuple[str, Multiples | None]:
    """Why the results of a layer may differ, a clause, or ""; and what binary16 holds of them in real units."""
    if planned.activation not in (Activation.NONE, Activation.RELU):
        return f"the machine's {planned.activation} is a piecewise linear curve", None
    if not (power_of_two(real) and (shift.astype(np.float16) == shift).all()):
        return "the product of its scales is no power of two, or its bias no multiple of it", None
    fraction = max(fraction_of(real), fraction_of(shift))
    bias = start + codes.stored * rows.sum(axis=1)
    ends = [np.minimum(rows * codes.first, rows * codes.last).sum(axis=1) + bias,
            np.maximum(rows * codes.first, rows * codes.last).sum(axis=1) + bias]
    sums = np.abs(ends).max(axis=0) * np.abs(real)
    largest, moved = float((sums + np.abs(shift)).max()), float(np.abs(shift).max())
    if answers is not None:
        clipped = min(largest, answers.limit + moved)
        why = "" if held(fraction, clipped) else _many(fraction, clipped)
        return why, Multiples(fraction=fraction, largest=largest)
    if not held(fraction, largest):
        return _many(fraction, largest), None
    return "", Multiples(fraction=fraction, largest=largest)


def _many(fraction: int, largest: float) -> str:
    bits = int(np.ceil(np.log2(max(largest, 1)))) + fraction
    return f"its sums have up to {bits} significant bits, and binary16 has 11"
