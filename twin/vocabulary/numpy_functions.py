"""The functions of generated source in numpy: each returns the bits of the machine.

The first axis of every tensor is the batch. Numbers are float16. Codes are floats: whole numbers in integer mode, real
numbers mantissa * 2**exponent in block floating point. Images are [batch, rows, columns, channels]. A product adds up
in the wider type of codes and weights, in which every sum must be exact. Call the functions under
`np.errstate(all="ignore")`: as on the machine, an overflow is an infinity.

A writer copies these functions into the source of a twin, so that each of them needs only numpy and others of them.
"""

import json
from functools import reduce
from pathlib import Path

import numpy as np
from concord.golden.mfu import activation
from concord.twin.vocabulary.shared import *


def read(file):
    """The tensors of a safetensors file by name."""
    data = Path(file).read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    types = {"F16": np.float16, "F32": np.float32, "F64": np.float64, "I32": np.int32}
    tensors = {}
    for name, each in json.loads(data[8:begin]).items():
        if name != "__metadata__":
            first, last = each["data_offsets"]
            values = np.frombuffer(data[begin + first : begin + last], types[each["dtype"]])
            tensors[name] = values.reshape(each["shape"])
    return tensors


def stored(values):
    """A tensor of a file as a value."""
    return values


def binary16(values, shape):
    """Inputs [batch, ...] as binary16 numbers; None in their shape stands for time steps."""
    return shaped(np.asarray(values), shape).astype(np.float16)


def add(a, b):
    """a + b, rounded to binary16."""
    return a + b


def subtract(a, b):
    """a - b, rounded to binary16."""
    return a - b


def multiply(a, b):
    """a * b, rounded to binary16."""
    return a * b


def curve(table):
    """A function of binary16 numbers by the table of its results for all 65,536 bit patterns."""
    return lambda a: table[a.view(np.uint16)]


sigmoid = curve(activation.sigmoid(np.arange(1 << 16)).view(np.float16))
tanh = curve(activation.tanh(np.arange(1 << 16)).view(np.float16))


def canonical(a):
    """Every NaN as the machine's NaN, 0x7e00."""
    return np.where(np.isnan(a), np.float16(np.nan), a)


def integers(x, lowest, highest):
    """Codes: numbers rounded to whole numbers, ties to even, and clipped; a NaN is 0."""
    x = x.astype(np.float32)
    return np.where(np.isnan(x), 0, np.clip(np.rint(x), lowest, highest))


def blocks(x, size, bits, exponents=(-15, 16), rule="frexp", symmetric=False):
    """Codes: mantissas of `bits` bits under one exponent for each block of `size` neighbours."""
    groups = grouped(x, size)
    fraction, exponent = np.frexp(np.abs(groups).max(-1, keepdims=True))
    exponent = np.clip(exponent - (fraction == 0.5) * (rule == "ceil"), *exponents)
    unit, limit = np.ldexp(1.0, exponent - bits + 1), 2 ** (bits - 1)
    mantissas = np.clip(np.rint(groups / unit), symmetric - limit, limit - 1)
    return ungrouped(mantissas * unit, x.shape[-1])


def grouped(x, size):
    """Neighbours in blocks [..., blocks, size], filled up with zeros.

    A NaN is 0, and an infinity is the largest number.
    """
    x = np.clip(np.nan_to_num(x.astype(np.float64), nan=0), -65504, 65504)
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % size)])
    return x.reshape(*x.shape[:-1], x.shape[-1] // size, size)


def ungrouped(groups, length):
    """The first elements of blocks, one block after the other."""
    return groups.reshape(*groups.shape[:-2], groups.shape[-2] * groups.shape[-1])[..., :length]


def floats(x, precision, lowest, highest, fraction=0):
    """Codes: multiples of 2**-fraction of `precision` significant bits, clipped; a NaN is 0."""
    x = np.where(np.isnan(x), 0, np.clip(x.astype(np.float32), lowest, highest))
    return significant(x, precision, 2.0**-fraction)


def float_blocks(x, size, bits, precision, exponents=(-15, 16)):
    """Codes: floats under one exponent for each block of `size` neighbours."""
    groups = grouped(x, size)
    largest = significant(np.abs(groups).max(-1, keepdims=True), precision, 2.0**-99)
    exponent = np.clip(np.frexp(largest)[1], *exponents)
    unit, limit = np.ldexp(1.0, exponent - bits + 1), np.ldexp(1 - 2.0**-precision, exponent)
    return ungrouped(significant(np.clip(groups, -limit, limit), precision, unit), x.shape[-1])


def significant(x, precision, unit):
    """x rounded to multiples of a unit of `precision` significant bits, ties to even."""
    step = np.maximum(np.ldexp(x.dtype.type(1), np.frexp(x)[1] - precision), unit)
    return np.rint(x / step) * step


def numbers(codes):
    """The values of codes, rounded to binary16."""
    return (codes + 0.0).astype(np.float16)


def dense(codes, weights, start=None, scale=0, wrap=0, fraction=0):
    """(weights @ codes + start) * 2**-scale: exact, then rounded once to binary16."""
    return rounded(codes @ weights.T, start, scale, wrap, fraction)


def convolution(codes, weights, start=None, scale=0, stride=(1, 1), padding=(0, 0, 0, 0),
                dilation=(1, 1), groups=1, fill=0, wrap=0, fraction=0):
    """`dense` of every window; weights are [rows, window rows, columns, channels / groups]."""
    seen = windows(codes, weights.shape[1:3], stride, padding, dilation, fill)
    seen = seen.reshape(*seen.shape[:5], groups, weights.shape[-1])
    kernels = weights.reshape(groups, -1, *weights.shape[1:])
    if groups == 1:
        sums = np.tensordot(seen[..., 0, :], weights, ((3, 4, 5), (1, 2, 3)))
    else:
        sums = np.einsum("brchwgi,gohwi->brcgo", seen, kernels)
        sums = sums.reshape(*sums.shape[:3], len(weights))
    return rounded(sums, start, scale, wrap, fraction)


def rounded(sums, start, scale, wrap, fraction):
    """Exact sums as binary16; modulo 2**(wrap - fraction) before, if the accumulator may wrap."""
    sums = sums + (0.0 if start is None else start)
    if wrap:
        half = 1 << wrap - 1
        steps = np.ldexp(sums.astype(np.float64), fraction).astype(np.int64)
        sums = np.ldexp(((steps + half & 2 * half - 1) - half).astype(np.float64), -fraction)
    return (sums * 2.0**-scale).astype(np.float16)


def windows(x, window, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), fill=0):
    """The windows of images, [batch, rows, columns, window rows, window columns, channels]."""
    top, bottom, left, right = padding
    if any(padding):
        x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)
    span = [(count - 1) * step + 1 for count, step in zip(window, dilation, strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(x, span, (1, 2))
    seen = seen[:, ::stride[0], ::stride[1], :, ::dilation[0], ::dilation[1]]
    return np.moveaxis(seen, 3, -1)


def patches(x, window, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), fill=0):
    """The windows of images, each as one vector, [batch, rows, columns, elements]."""
    seen = windows(x, window, stride, padding, dilation, fill)
    return seen.reshape(*seen.shape[:3], np.prod(seen.shape[3:]))


def max_pool(x, window, stride=(1, 1), padding=(0, 0, 0, 0), fill=0):
    """The largest value of the window at every place, channel by channel."""
    seen = windows(x, window, stride, padding, fill=fill)
    pixels = [seen[:, :, :, i, j] for i in range(window[0]) for j in range(window[1])]
    return reduce(maximum, pixels)


def take(index, *values):
    """The elements of all values one after the other, flattened, at the places of a table."""
    return join(*(flatten(value) for value in values))[:, index]


def transpose(x, axes):
    """Axes in another order; the batch is axis 0 and stays in front."""
    return x.transpose(0, *axes)
