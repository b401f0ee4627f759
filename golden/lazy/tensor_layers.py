"""Layers under training in block floating point, on whole training tensors: what goes forward, what comes back.

Forward, 8 bits x 8 bits: the sum over products is an exact integer in units of 2**(lsb_x + lsb_w), to which the bias is
added, and is brought to 32 bits once (the *linear* value) and from there to 8 bits. Backward, gradients arrive in 16 or
32 bits. 16 bits become 32 by a shift: the exponent stays. A layer with parameters takes its own gradients from
the 32 bits (exact, brought to 32 bits once) and that of its input from 16 bits (exact, to 32 bits, then to 16).

Source: S2, table of widths; numerics.md of the specification, lazy update and training tensors.
"""

from dataclasses import dataclass

import numpy as np
from concord.golden.lazy.tensor import TrainingTensor, requantize, round_shift
from concord.spec.numbers.lazy import Width

#: A sum's unit is never finer than 2**-REACH of the coarser unit of two terms, so that 64 bits hold it.
REACH = 24
#: Bits of a mean below the unit of what it is taken of, before it is brought to 8 bits.
MEAN_BITS = 16


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


def widen(gradient: TrainingTensor) -> TrainingTensor:
    """A gradient of 16 or 32 bits in 32: the exponent stays, mantissas move to the left."""
    return TrainingTensor(gradient.mantissas << Width.LINEAR - gradient.bits, gradient.exponent, Width.LINEAR)


def narrow(gradient: TrainingTensor) -> TrainingTensor:
    """A gradient of 32 bits in 16, its exponent measured again."""
    return requantize(gradient.mantissas, unit(gradient), Width.GRADIENT)


def divide(values: np.ndarray, by: int) -> np.ndarray:
    """round(values / by), half away from zero."""
    return np.sign(values) * ((2 * np.abs(values) + by) // (2 * by))


def _with_bias(sums: np.ndarray, lsb: int, bias: TrainingTensor) -> tuple[np.ndarray, int]:
    """sums + bias (which broadcasts) and their unit: that of the sums, to which the bias is rounded half away.

    The unit of sums more than REACH bits finer than the bias' own becomes 2**-REACH of the latter.
    """
    low = max(lsb, unit(bias) - REACH)
    return round_shift(sums, low - lsb) + round_shift(bias.mantissas, low - unit(bias)), low


def add_exact(a: TrainingTensor, b: TrainingTensor) -> tuple[np.ndarray, int]:
    """Exact sum of two tensors, and the exponent of its unit: the finer one, but within REACH of the coarser one."""
    units = unit(a), unit(b)
    low = max(min(units), max(units) - REACH)
    return round_shift(a.mantissas, low - units[0]) + round_shift(b.mantissas, low - units[1]), low


def linear(sums: np.ndarray, lsb: int) -> TrainingTensor:
    """Exact sums in 32 bits."""
    return requantize(sums, lsb, Width.LINEAR)


def activations(sums: TrainingTensor) -> TrainingTensor:
    """Linear values in 8 bits."""
    return requantize(sums.mantissas, unit(sums), Width.ACTIVATION)


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


def dense(x: TrainingTensor, weight: TrainingTensor, bias: TrainingTensor) -> TrainingTensor:
    """Linear value[samples, outputs] of x[samples, inputs], weight[outputs, inputs] and bias[outputs]."""
    return linear(*_with_bias(x.mantissas @ weight.mantissas.T, unit(x) + unit(weight), bias))


def dense_back(x: TrainingTensor, weight: TrainingTensor, gradient: TrainingTensor, wanted: bool = True) -> Gradients:
    """Gradients of a dense layer.

    Args:
        x, weight: As for `dense`.
        gradient:  Of its output, 16 or 32 bits.
        wanted:    Whether that of the input is.
    """
    g32 = widen(gradient)
    g16 = narrow(g32)
    inputs = narrow(linear(g16.mantissas @ weight.mantissas, unit(g16) + unit(weight))) if wanted else None
    products = linear(g32.mantissas.T @ x.mantissas, unit(g32) + unit(x))
    return Gradients(inputs, products, linear(g32.mantissas.sum(0), unit(g32)))


def convolve(
    x: TrainingTensor, weight: TrainingTensor, bias: TrainingTensor, stride: int = 1, padding: int = 0
) -> TrainingTensor:
    """Linear value of a convolution (a correlation, as everywhere in the field), zeros around its input.

    Args:
        x:       [samples, channels, rows, columns].
        weight:  [outputs, channels, *size].
        bias:    [outputs].
        stride:  Of rows and columns.
        padding: Zeros on each of the four sides.
    """
    seen = windows(x.mantissas, weight.mantissas.shape[2:], stride, padding)
    sums = np.einsum("nchwij,ocij->nohw", seen, weight.mantissas)
    column = whole(bias.mantissas[:, None, None], bias.exponent.item(), bias.bits)
    return linear(*_with_bias(sums, unit(x) + unit(weight), column))


def convolve_back(
    x: TrainingTensor, weight: TrainingTensor, gradient: TrainingTensor, stride: int = 1, padding: int = 0,
    wanted: bool = True,
) -> Gradients:
    """Gradients of a convolution. Arguments as for `convolve` and `dense_back`."""
    g32 = widen(gradient)
    inputs = None
    if wanted:
        g16 = narrow(g32)
        parts = np.einsum("nohw,ocij->nchwij", g16.mantissas, weight.mantissas)
        inputs = narrow(linear(spread(parts, x.mantissas.shape, stride, padding), unit(g16) + unit(weight)))
    seen = windows(x.mantissas, weight.mantissas.shape[2:], stride, padding)
    rows, columns = g32.mantissas.shape[2:]
    products = np.einsum("nohw,nchwij->ocij", g32.mantissas, seen[:, :, :rows, :columns])
    return Gradients(inputs, linear(products, unit(g32) + unit(x)), linear(g32.mantissas.sum((0, 2, 3)), unit(g32)))


def max_pool(x: TrainingTensor, size: int, stride: int) -> tuple[TrainingTensor, np.ndarray]:
    """The largest of each window, and which it was: the first in rows, then columns, where several are equal."""
    seen = windows(x.mantissas, (size, size), stride)
    flat = seen.reshape(*seen.shape[:4], size * size)
    chosen = flat.argmax(-1)
    return TrainingTensor(np.take_along_axis(flat, chosen[..., None], -1)[..., 0], x.exponent, x.bits), chosen


def max_pool_back(
    gradient: TrainingTensor, chosen: np.ndarray, shape: tuple[int, ...], size: int, stride: int
) -> TrainingTensor:
    """32 bits. Where windows overlap, what they send to one input is added exactly and brought to 32 bits."""
    wide = widen(gradient)
    parts = np.where(np.arange(size * size) == chosen[..., None], wide.mantissas[..., None], 0)
    total = spread(parts.reshape(*chosen.shape, size, size), shape, stride)
    return linear(total, unit(wide)) if stride < size else TrainingTensor(total, wide.exponent, wide.bits)


def average_pool(x: TrainingTensor, size: int, stride: int) -> TrainingTensor:
    """Means of windows: the exact sum, MEAN_BITS below its unit, divided once, half away, and brought to 8 bits."""
    sums = windows(x.mantissas, (size, size), stride).sum((4, 5))
    return requantize(divide(sums << MEAN_BITS, size * size), unit(x) - MEAN_BITS, Width.ACTIVATION)


def average_pool_back(gradient: TrainingTensor, shape: tuple[int, ...], size: int, stride: int) -> TrainingTensor:
    """32 bits: what the windows send to an input is added exactly and divided once, half away. Its exponent stays."""
    wide = widen(gradient)
    parts = np.broadcast_to(wide.mantissas[..., None, None], (*wide.mantissas.shape, size, size))
    return TrainingTensor(divide(spread(parts, shape, stride), size * size), wide.exponent, wide.bits)


def relu(x: TrainingTensor) -> TrainingTensor:
    return TrainingTensor(np.maximum(x.mantissas, 0), x.exponent, x.bits)


def relu_back(gradient: TrainingTensor, y: TrainingTensor) -> TrainingTensor:
    """32 bits: the gradient passes where y = relu(x) is above zero."""
    wide = widen(gradient)
    return TrainingTensor(np.where(y.mantissas > 0, wide.mantissas, 0), wide.exponent, wide.bits)


def add(a: TrainingTensor, b: TrainingTensor) -> TrainingTensor:
    """Sum of two branches, exact, in 8 bits."""
    return requantize(*add_exact(a, b), Width.ACTIVATION)


def add_gradients(a: TrainingTensor, b: TrainingTensor) -> TrainingTensor:
    """Sum of the gradients that two branches send to what they share, exact, in 16 bits."""
    return requantize(*add_exact(a, b), Width.GRADIENT)
