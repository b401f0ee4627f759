"""The functions of generated source in TensorFlow: each returns the bits of the machine, eager and in a graph.

Numbers are float16 tensors; see `numpy_functions` for codes and images.
"""

import math
from functools import reduce

import numpy as np
import tensorflow as tf
from concord.golden.mfu import activation
from concord.twin.vocabulary.shared import *


def curve(table):
    """A function of binary16 numbers by the table of its results for all 65,536 bit patterns."""
    return lambda a: tf.gather(table, tf.cast(tf.bitcast(a, tf.uint16), tf.int32))


sigmoid = curve(tf.constant(activation.sigmoid(np.arange(1 << 16)).view(np.float16)))
tanh = curve(tf.constant(activation.tanh(np.arange(1 << 16)).view(np.float16)))


def stored(values):
    """A tensor of a file as a value."""
    return tf.constant(values)


def binary16(values, shape):
    """Inputs [batch, ...] as binary16 numbers; None in their shape stands for time steps."""
    return half(shaped(float64(values), shape))


def float64(values):
    """An array, a tensor, or numbers of Python in float64."""
    given = None if hasattr(values, "dtype") else tf.float64
    return tf.cast(tf.convert_to_tensor(values, given), tf.float64)


def shaped(values, shape):
    """Inputs with all axes of a sample, which may be flattened, or lack axes of one element."""
    steps, found = shape.count(None), tuple(values.shape)
    given, wanted = squeezed(found[1 + steps :]), squeezed(shape[steps:])
    if None in found[1:]:
        raise ValueError(f"inputs of shape {found}: only the number of samples may be open")
    if len(found) <= steps or given not in (wanted, [math.prod(wanted)]):
        raise ValueError(f"inputs of shape {found} are no batch of samples of shape {shape}")
    return tf.reshape(values, [*dimensions(values)[: 1 + steps], *shape[steps:]])


def half(x):
    """Numbers rounded once to binary16, ties to even."""
    if x.dtype == tf.float32 and tf.executing_eagerly():
        return tf.cast(x, tf.float16)
    # XLA drops casts to float16 and back, and a cast from float64 rounds twice.
    unit = tf.maximum(power(x) * 2.0**-10, 2.0**-24)
    y = tf.where(tf.abs(x) < 65520, tf.round(x / unit) * unit, x * np.inf)
    return tf.cast(y, tf.float16)


def power(x):
    """The largest power of two up to |x|, or 0."""
    word, mask = (tf.int64, 0x7FF << 52) if x.dtype == tf.float64 else (tf.int32, 0xFF << 23)
    return tf.bitcast(tf.bitwise.bitwise_and(tf.bitcast(x, word), tf.constant(mask, word)), x.dtype)


def add(a, b):
    """a + b, rounded to binary16."""
    return half(tf.cast(a, tf.float32) + tf.cast(b, tf.float32))


def subtract(a, b):
    """a - b, rounded to binary16."""
    return half(tf.cast(a, tf.float32) - tf.cast(b, tf.float32))


def multiply(a, b):
    """a * b, rounded to binary16."""
    return half(tf.cast(a, tf.float32) * tf.cast(b, tf.float32))


def maximum(a, b):
    """The larger of a and b; +0 is larger than -0."""
    larger = tf.where(a > b, a, tf.where(a < b, b, a + b))
    return tf.where((a == b) & (a != 0), a, larger)


def canonical(a):
    """Every NaN as the machine's NaN, 0x7e00."""
    return tf.where(tf.math.is_nan(a), tf.constant(np.nan, a.dtype), a)


def integers(x, lowest, highest):
    """Codes: numbers rounded to whole numbers, ties to even, and clipped; a NaN is 0."""
    x = tf.cast(x, tf.float32)
    codes = tf.clip_by_value(tf.round(x), lowest, highest)
    return tf.where(tf.math.is_nan(x), 0.0, codes)


def blocks(x, size, bits, exponents=(-15, 16), rule="frexp", symmetric=False):
    """Codes: mantissas of `bits` bits under one exponent for each block of `size` neighbours."""
    groups = grouped(x, size)
    largest = tf.reduce_max(tf.abs(groups), -1, keepdims=True)
    above = 2 * power(largest)
    if rule == "ceil":
        above = tf.where(largest == above / 2, largest, above)
    lowest, highest = (2.0**exponent for exponent in exponents)
    unit = tf.clip_by_value(above, lowest, highest) * 2.0 ** (1 - bits)
    limit = 2 ** (bits - 1)
    mantissas = tf.clip_by_value(tf.round(groups / unit), symmetric - limit, limit - 1)
    return ungrouped(mantissas * unit, x)


def grouped(x, size):
    """Neighbours in blocks [..., blocks, size], filled up with zeros.

    A NaN is 0, and an infinity is the largest number.
    """
    y = tf.cast(x, tf.float64)
    y = tf.clip_by_value(tf.where(tf.math.is_nan(y), tf.zeros_like(y), y), -65504, 65504)
    y = tf.pad(y, [(0, 0)] * (len(x.shape) - 1) + [(0, -x.shape[-1] % size)])
    return tf.reshape(y, [*dimensions(y)[:-1], y.shape[-1] // size, size])


def ungrouped(groups, x):
    """Blocks of neighbours in the shape of x."""
    width = groups.shape[-2] * groups.shape[-1]
    return tf.reshape(groups, [*dimensions(x)[:-1], width])[..., : x.shape[-1]]


def floats(x, precision, lowest, highest, fraction=0):
    """Codes: multiples of 2**-fraction of `precision` significant bits, clipped; a NaN is 0."""
    y = tf.clip_by_value(tf.cast(x, tf.float64), lowest, highest)
    y = tf.where(tf.math.is_nan(y), tf.zeros_like(y), y)
    return tf.cast(significant(y, precision, tf.constant(2.0**-fraction, tf.float64)), tf.float32)


def float_blocks(x, size, bits, precision, exponents=(-15, 16)):
    """Codes: floats under one exponent for each block of `size` neighbours."""
    groups = grouped(x, size)
    largest = tf.reduce_max(tf.abs(groups), -1, keepdims=True)
    above = 2 * power(significant(largest, precision, tf.constant(2.0**-99, tf.float64)))
    above = tf.clip_by_value(above, *(2.0**exponent for exponent in exponents))
    unit, limit = above * 2.0 ** (1 - bits), above * (1 - 2.0**-precision)
    return ungrouped(significant(tf.clip_by_value(groups, -limit, limit), precision, unit), x)


def significant(y, precision, unit):
    """y rounded to multiples of a unit of `precision` significant bits, ties to even."""
    step = tf.maximum(power(y) * 2.0 ** (1 - precision), unit)
    return tf.round(y / step) * step


def dimensions(x):
    """The size of each axis: a number, or a tensor where a graph does not know it."""
    known, found = x.shape, tf.shape(x)
    return [found[axis] if size is None else size for axis, size in enumerate(known)]


def numbers(codes):
    """The values of codes, rounded to binary16."""
    return half(codes + tf.zeros_like(codes))


def dense(codes, weights, start=None, scale=0, wrap=0, fraction=0):
    """(weights @ codes + start) * 2**-scale: exact, then rounded once to binary16."""
    sums = tf.tensordot(tf.cast(codes, weights.dtype), weights, [[-1], [-1]])
    return rounded(sums, start, scale, wrap, fraction)


def convolution(codes, weights, start=None, scale=0, stride=(1, 1), padding=(0, 0, 0, 0),
                dilation=(1, 1), groups=1, fill=0, wrap=0, fraction=0):
    """`dense` of every window; weights are [rows, window rows, columns, channels / groups]."""
    codes = tf.cast(codes, weights.dtype)
    seen = windows(codes, weights.shape[1:3], stride, padding, dilation, fill)
    parts = tf.split(seen, groups, -1), tf.split(weights, groups, 0)
    axes = [[3, 4, 5], [1, 2, 3]]
    sums = [tf.tensordot(*each, axes) for each in zip(*parts, strict=True)]
    return rounded(tf.concat(sums, -1), start, scale, wrap, fraction)


def rounded(sums, start, scale, wrap, fraction):
    """Exact sums as binary16; modulo 2**(wrap - fraction) before, if the accumulator may wrap."""
    sums = sums if start is None else sums + tf.cast(start, sums.dtype)
    if wrap:
        limit = 1 << wrap - 1
        steps = tf.cast(tf.cast(sums, tf.float64) * 2.0**fraction, tf.int64)
        wrapped = tf.math.floormod(steps + limit, 2 * limit) - limit
        sums = tf.cast(wrapped, tf.float64) * 2.0**-fraction
    # A sum of negative zeros is +0, too.
    return half(tf.where(sums == 0, tf.zeros_like(sums), sums) * 2.0**-scale)


def windows(x, window, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), fill=0):
    """The windows of images, [batch, rows, columns, window rows, window columns, channels]."""
    top, bottom, left, right = padding
    x = tf.pad(x, [(0, 0), (top, bottom), (left, right), (0, 0)], constant_values=fill)
    for axis, count, distance, gap in zip((1, 3), window, stride, dilation, strict=True):
        first = np.arange(0, x.shape[axis] - (count - 1) * gap, distance)[:, None]
        x = tf.gather(x, first + np.arange(count) * gap, axis=axis)
    return tf.transpose(x, [0, 1, 3, 2, 4, 5])


def patches(x, window, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), fill=0):
    """The windows of images, each as one vector, [batch, rows, columns, elements]."""
    seen = windows(x, window, stride, padding, dilation, fill)
    return tf.reshape(seen, [*dimensions(seen)[:3], int(np.prod(seen.shape[3:]))])


def max_pool(x, window, stride=(1, 1), padding=(0, 0, 0, 0), fill=0):
    """The largest value of the window at every place, channel by channel."""
    seen = windows(x, window, stride, padding, fill=fill)
    pixels = [seen[:, :, :, i, j] for i in range(window[0]) for j in range(window[1])]
    return reduce(maximum, pixels)


def take(index, *values):
    """The elements of all values one after the other, flattened, at the places of a table."""
    return tf.gather(join(*(flatten(value) for value in values)), index, axis=1)


def flatten(x):
    """All elements of a sample as one vector."""
    return tf.reshape(x, [dimensions(x)[0], int(np.prod(x.shape[1:]))])


def reshape(x, shape):
    """Elements in their order in another shape."""
    return tf.reshape(x, [dimensions(x)[0], *shape])


def image(x, shape):
    """Samples of shape (channels, rows, columns) as [batch, rows, columns, channels]."""
    return tf.transpose(reshape(x, shape), [0, 2, 3, 1])


def transpose(x, axes):
    """Axes in another order; the batch is axis 0 and stays in front."""
    return tf.transpose(x, [0, *axes])


def start(like, values):
    """The same stored values for every sample of a batch, that of `like`."""
    return tf.broadcast_to(values, [dimensions(like)[0], *values.shape])


def accumulated(codes, weights, start=None, scale=0, bits=32, units=(0, 0), shift=0):
    """(weights @ codes + start) * 2**-scale, modulo an accumulator, rounded once to binary16.

    Codes and weights are multiples of 2**units[0] and 2**units[1]. A total counts
    2**(units[0] + units[1] - shift). Weights are [rows, columns].
    """
    if bits > 64:
        raise ValueError(f"TensorFlow has no integers for an accumulator of {bits} bits")
    left = whole_numbers(tf.cast(codes, tf.float64) * 2.0 ** -units[0])
    right = whole_numbers(tf.cast(weights, tf.float64) * 2.0 ** -units[1])
    totals = tf.tensordot(left, tf.transpose(right), 1) * (1 << shift)
    if start is not None:
        totals = totals + tf.cast(start, tf.int64)
    if bits < 64:
        limit = 1 << bits - 1
        mask = tf.constant(2 * limit - 1, tf.int64)
        totals = tf.bitwise.bitwise_and(totals + limit, mask) - limit
    # Large totals keep 1 for what lies below every rounding point.
    large = (totals >= 1 << 53) | (totals < -1 << 53)
    high = totals // (1 << 28)
    cut = tf.bitwise.bitwise_or(high, tf.cast(totals != high * (1 << 28), tf.int64))
    exact = tf.where(large, tf.cast(cut, tf.float64) * 2.0**28, tf.cast(totals, tf.float64))
    return half(exact * 2.0**-scale)


def whole_numbers(x):
    """Numbers as int64."""
    return tf.cast(tf.round(x), tf.int64)


def softmax(a, fractions, wholes):
    """exp(a) by its sum along the last axis: whole numbers of two tables, rounded once."""
    x = tf.cast(a, tf.float64)
    finite = tf.where(tf.math.is_finite(x), x, tf.constant(-65536.0, tf.float64))
    places = tf.cast(tf.floor(finite * 65536), tf.int64)
    distance = tf.reduce_max(places, -1, keepdims=True) - places  # in parts of 2**-16
    part = distance % 65536
    base, slope = tf.unstack(tf.gather(tf.cast(fractions, tf.int64), part // 512), axis=-1)
    count = wholes.shape[0]
    rows = tf.gather(tf.cast(wholes, tf.int64), tf.minimum(distance // 65536, count - 1))
    factor, shift = tf.unstack(rows, axis=-1)
    terms = tf.bitwise.right_shift((base - slope * (part % 512) // 512) * factor, shift)
    terms = tf.where(distance // 65536 < count, terms, 0) * (1 << 25)
    total = tf.reduce_sum(terms, -1, keepdims=True) // (1 << 25)
    quotient = terms // total
    rest = tf.cast(terms > quotient * total, tf.float64)
    result = half((2.0 * tf.cast(quotient, tf.float64) + rest) * 2.0**-26)
    wrong = tf.reduce_any(tf.math.is_nan(x) | (x == float("inf")), -1, keepdims=True)
    wrong |= tf.reduce_all(x == -float("inf"), -1, keepdims=True)
    return tf.where(wrong, tf.constant(float("nan"), tf.float16), result)
