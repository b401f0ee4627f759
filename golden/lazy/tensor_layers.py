"""Layers under training in block floating point, on whole training tensors: what goes forward, what comes back.

Forward, 8 bits x 8 bits: the sum over products is an exact integer in units of 2**(lsb_x + lsb_w), to which the bias is
added, and is brought to 8 bits at once, or to 32 where it is the network's output. Backward, gradients have 16 bits. A
layer with parameters multiplies the same gradient by its input and by its weights, both exactly: that of its input is
brought to 16 bits, its own gradients to 32, see `parameter_gradient`.

Source: S2, table of widths; numerics.md of the specification, lazy update and training tensors.
"""

from dataclasses import dataclass

import numpy as np
from concord.golden.lazy.tensor import TrainingTensor, measure, requantize, round_shift
from concord.spec.numbers.lazy import ACCUMULATOR_BITS, E_MAX, E_MIN, MOST_TERMS, Width

#: A sum's unit is never finer than 2**-REACH of the coarser unit of two terms of up to 16 bits.
REACH = 24
#: Most bits by which the unit of a bias is coarser than that of the sums to which it is added.
BIAS_REACH = ACCUMULATOR_BITS - Width.PARAMETER - 1


@dataclass(frozen=True, slots=True)
class Gradients:
    """What a layer with parameters sends back.

    Attributes:
        inputs: Of the layer's input, 16 bits; None where nobody asked for it.
        weight: 32 bits.
        bias:   32 bits.
    """

    inputs: TrainingTensor | None
    weight: TrainingTensor
    bias: TrainingTensor


def whole(mantissas: np.ndarray, exponent: int, bits: int) -> TrainingTensor:
    """A training tensor whose elements all share one exponent."""
    return TrainingTensor(mantissas, np.full((1,) * mantissas.ndim, exponent, np.int64), bits)


def unit(tensor: TrainingTensor) -> int:
    """Exponent of one unit of the mantissas, of a tensor with a single exponent."""
    return int(tensor.lsb.item())


def reciprocal(count: int) -> tuple[int, int]:
    """1 / count as mantissa * 2**lsb, the mantissa of 16 bits, rounded half up; exact for a power of two."""
    shift = (count - 1).bit_length() + Width.GRADIENT - 2
    return ((2 << shift) + count) // (2 * count), -shift


def check_terms(count: int, what: str):
    """Refuse a sum over products of 16 and 8 bits that an accumulator may not hold.

    Raises:
        ValueError: there are more terms than MOST_TERMS.
    """
    if count > MOST_TERMS:
        raise ValueError(f"{what} adds {count:,} products (samples times positions), and {ACCUMULATOR_BITS} bits hold "
                         f"{MOST_TERMS:,} of 16 x 8 bits; use smaller batches")


def with_bias(sums: np.ndarray, lsb: int, bias: TrainingTensor) -> tuple[np.ndarray, int]:
    """sums + bias (which broadcasts) and their unit: that of the sums, to which the bias is rounded half away.

    Where the bias has a unit more than BIAS_REACH bits coarser, each sum is below one half of it, and the bias stands
    alone.
    """
    apart = unit(bias) - lsb
    if apart > BIAS_REACH:
        return np.zeros_like(sums) + bias.mantissas, unit(bias)
    return sums + round_shift(bias.mantissas, -apart), lsb


def add_exact(a: TrainingTensor, b: TrainingTensor, reach: int = REACH) -> tuple[np.ndarray, int]:
    """Exact sum of two tensors, and the exponent of its unit: the finer one, but within `reach` of the coarser one."""
    units = unit(a), unit(b)
    low = max(min(units), max(units) - reach)
    return round_shift(a.mantissas, low - units[0]) + round_shift(b.mantissas, low - units[1]), low


def windows(x: np.ndarray, size: tuple[int, int], stride: int, padding: int = 0) -> np.ndarray:
    """What each output sees of x[samples, channels, rows, columns]: a view [samples, channels, *outputs, *size]."""
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    return np.lib.stride_tricks.sliding_window_view(padded, size, (2, 3))[:, :, ::stride, ::stride]


def spread(parts: np.ndarray, shape: tuple[int, ...], stride: int, padding: int = 0) -> np.ndarray:
    """The transpose of `windows`: add parts[samples, channels, *outputs, *size] where they came from in `shape`."""
    rows, columns = shape[2:]
    total = np.zeros((*shape[:2], rows + 2 * padding, columns + 2 * padding), np.int64)
    height, width = parts.shape[2:4]
    for i in range(parts.shape[4]):
        for j in range(parts.shape[5]):
            total[:, :, i : i + stride * height : stride, j : j + stride * width : stride] += parts[..., i, j]
    return total[:, :, padding : padding + rows, padding : padding + columns]


def parameter_gradient(sums: np.ndarray, lsb: int) -> TrainingTensor:
    """The gradient of parameters: exact sums in units of 2**lsb, in 32 bits, whose unit is never finer than theirs.

    Sums that fit 32 bits are mantissas as they are, whatever the largest of them is, so that the momentum may take each
    sum before the last one is known. Only a tensor with a larger one is rounded, under the exponent of the largest.
    """
    exponent = np.clip(np.maximum(measure(sums, lsb), lsb + Width.LINEAR - 1), E_MIN, E_MAX)
    return requantize(sums, lsb, Width.LINEAR, exponent=exponent)


def dense(x: TrainingTensor, weight: TrainingTensor, bias: TrainingTensor, bits: int = Width.LINEAR
          ) -> TrainingTensor:
    """Result[samples, outputs] of x[samples, inputs], weight[outputs, inputs] and bias[outputs], in `bits` bits."""
    return requantize(*with_bias(x.mantissas @ weight.mantissas.T, unit(x) + unit(weight), bias), bits)


def dense_back(x: TrainingTensor, weight: TrainingTensor, gradient: TrainingTensor, wanted: bool = True) -> Gradients:
    """Gradients of a dense layer.

    Args:
        x, weight: As for `dense`.
        gradient:  Of its output, 16 bits.
        wanted:    Whether that of the input is.

    Raises:
        ValueError: the batch is too large for the accumulators, see `check_terms`.
    """
    check_terms(len(x.mantissas), "the gradient of a dense layer")
    g, inputs = gradient.mantissas, None
    if wanted:
        inputs = requantize(g @ weight.mantissas, unit(gradient) + unit(weight), Width.GRADIENT)
    products = parameter_gradient(g.T @ x.mantissas, unit(gradient) + unit(x))
    return Gradients(inputs, products, parameter_gradient(g.sum(0), unit(gradient)))


def convolve(
    x: TrainingTensor, weight: TrainingTensor, bias: TrainingTensor, stride: int = 1, padding: int = 0,
    bits: int = Width.LINEAR,
) -> TrainingTensor:
    """Result of a convolution (a correlation, as everywhere in the field), zeros around its input.

    Args:
        x:       [samples, channels, rows, columns].
        weight:  [outputs, channels, *size].
        bias:    [outputs].
        stride:  Of rows and columns.
        padding: Zeros on each of the four sides.
        bits:    Of the result.
    """
    seen = windows(x.mantissas, weight.mantissas.shape[2:], stride, padding)
    sums = np.einsum("nchwij,ocij->nohw", seen, weight.mantissas)
    column = whole(bias.mantissas[:, None, None], bias.exponent.item(), bias.bits)
    return requantize(*with_bias(sums, unit(x) + unit(weight), column), bits)


def convolve_back(
    x: TrainingTensor, weight: TrainingTensor, gradient: TrainingTensor, stride: int = 1, padding: int = 0,
    wanted: bool = True,
) -> Gradients:
    """Gradients of a convolution. Arguments as for `convolve` and `dense_back`."""
    g, inputs = gradient.mantissas, None
    rows, columns = g.shape[2:]
    check_terms(len(g) * rows * columns, "the gradient of a convolution")
    if wanted:
        parts = np.einsum("nohw,ocij->nchwij", g, weight.mantissas)
        inputs = requantize(spread(parts, x.mantissas.shape, stride, padding), unit(gradient) + unit(weight),
                            Width.GRADIENT)
    seen = windows(x.mantissas, weight.mantissas.shape[2:], stride, padding)
    products = np.einsum("nohw,nchwij->ocij", g, seen[:, :, :rows, :columns])
    return Gradients(inputs, parameter_gradient(products, unit(gradient) + unit(x)),
                     parameter_gradient(g.sum((0, 2, 3)), unit(gradient)))


def max_pool(x: TrainingTensor, size: int, stride: int) -> tuple[TrainingTensor, np.ndarray]:
    """The largest of each window, and which it was: the first in rows, then columns, where several are equal."""
    seen = windows(x.mantissas, (size, size), stride)
    flat = seen.reshape(*seen.shape[:4], size * size)
    chosen = flat.argmax(-1)
    return TrainingTensor(np.take_along_axis(flat, chosen[..., None], -1)[..., 0], x.exponent, x.bits), chosen


def max_pool_back(
    gradient: TrainingTensor, chosen: np.ndarray, shape: tuple[int, ...], size: int, stride: int
) -> TrainingTensor:
    """16 bits. Where windows overlap, what they send to one input is added exactly and brought to 16 bits."""
    parts = np.where(np.arange(size * size) == chosen[..., None], gradient.mantissas[..., None], 0)
    total = spread(parts.reshape(*chosen.shape, size, size), shape, stride)
    if stride < size:
        return requantize(total, unit(gradient), Width.GRADIENT)
    return TrainingTensor(total, gradient.exponent, gradient.bits)


def average_pool(x: TrainingTensor, size: int, stride: int) -> TrainingTensor:
    """Means of windows: the exact sum times the `reciprocal` of their size, exactly, brought to 8 bits once."""
    mantissa, lsb = reciprocal(size * size)
    sums = windows(x.mantissas, (size, size), stride).sum((4, 5))
    return requantize(sums * mantissa, unit(x) + lsb, Width.ACTIVATION)


def average_pool_back(gradient: TrainingTensor, shape: tuple[int, ...], size: int, stride: int) -> TrainingTensor:
    """16 bits: what the windows send to an input is added exactly and multiplied by the `reciprocal` exactly."""
    mantissa, lsb = reciprocal(size * size)
    parts = np.broadcast_to(gradient.mantissas[..., None, None], (*gradient.mantissas.shape, size, size))
    return requantize(spread(parts, shape, stride) * mantissa, unit(gradient) + lsb, Width.GRADIENT)


def relu(x: TrainingTensor) -> TrainingTensor:
    return TrainingTensor(np.maximum(x.mantissas, 0), x.exponent, x.bits)


def relu_back(gradient: TrainingTensor, y: TrainingTensor) -> TrainingTensor:
    """The gradient passes where y = relu(x) is above zero; its exponent stays."""
    return TrainingTensor(np.where(y.mantissas > 0, gradient.mantissas, 0), gradient.exponent, gradient.bits)


def add(a: TrainingTensor, b: TrainingTensor) -> TrainingTensor:
    """Sum of two branches, exact, in 8 bits."""
    return requantize(*add_exact(a, b), Width.ACTIVATION)


def add_gradients(a: TrainingTensor, b: TrainingTensor) -> TrainingTensor:
    """Sum of the gradients that two branches send to what they share, exact, in 16 bits."""
    return requantize(*add_exact(a, b), Width.GRADIENT)
