"""The functions of generated source in TensorFlow that differ from those in numpy, with the same bits, also in a graph.

Numbers are float32 tensors that hold binary16 values; see `numpy_functions` for codes and images, and for all other
functions. Gradients pass roundings unchanged, and quantisers inside their range. A graph does not know the number of
samples, and XLA keeps no casts to float16. Functions that begin with `real_` are those of twins without quantisers.
"""

import math

import numpy as np
import tensorflow as tf
from concord.twin.vocabulary.layout import flatten, join, squeezed
from concord.twin.vocabulary.numpy_functions import rounded, rounded_total, shares
from concord.twin.vocabulary.tensorflow_module import straight


def stored(values):
    """A tensor of a file as a value: binary16 numbers as float32."""
    values = tf.constant(values)
    return tf.cast(values, tf.float32) if values.dtype == tf.float16 else values


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
    """Numbers rounded once to binary16, ties to even, as float32."""
    if x.dtype == tf.float32 and tf.executing_eagerly():
        return straight(x, tf.cast(tf.cast(x, tf.float16), tf.float32))
    # XLA drops casts to float16 and back, and a cast from float64 rounds twice.
    unit = tf.maximum(power(x) * 2.0**-10, 2.0**-24)
    y = tf.where(tf.abs(x) < 65520, tf.round(x / unit) * unit, x * np.inf)
    return straight(tf.cast(x, tf.float32), tf.cast(y, tf.float32))


def power(x):
    """The largest power of two up to |x|, or 0."""
    word, mask = (tf.int64, 0x7FF << 52) if x.dtype == tf.float64 else (tf.int32, 0xFF << 23)
    return tf.bitcast(tf.bitwise.bitwise_and(tf.bitcast(x, word), tf.constant(mask, word)), x.dtype)


def add(a, b):
    """a + b, rounded to binary16."""
    return half(a + b)


def subtract(a, b):
    """a - b, rounded to binary16."""
    return half(a - b)


def multiply(a, b):
    """a * b, rounded to binary16."""
    return half(a * b)


def maximum(a, b):
    """The larger of a and b; +0 is larger than -0."""
    larger = tf.where(a > b, a, tf.where(a < b, b, a + b))
    return tf.where((a == b) & (a != 0), a, larger)


def dimensions(x):
    """The size of each axis: a number, or a tensor where a graph does not know it."""
    known, found = x.shape, tf.shape(x)
    return [found[axis] if size is None else size for axis, size in enumerate(known)]


def dense(codes, weights, start=None, scale=0, wrap=0, fraction=0):
    """(weights @ codes + start) * 2**-scale: exact, then rounded once to binary16."""
    sums = tf.tensordot(tf.cast(codes, weights.dtype), weights, [[-1], [-1]])
    return rounded(sums, start, scale, wrap, fraction)


def matmul(codes, others, wrap=0, fraction=0):
    """codes @ others, whose last two axes are exchanged: exact, then rounded once to binary16."""
    sums = tf.matmul(tf.cast(codes, tf.float64), tf.cast(others, tf.float64), transpose_b=True)
    return rounded(sums, None, 0, wrap, fraction)


def windows(x, window, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), fill=0):
    """The windows of images, [batch, rows, columns, window rows, window columns, channels]."""
    top, bottom, left, right = padding
    x = tf.pad(x, [(0, 0), (top, bottom), (left, right), (0, 0)], constant_values=fill)
    for axis, count, distance, gap in zip((1, 3), window, stride, dilation, strict=True):
        first = np.arange(0, x.shape[axis] - (count - 1) * gap, distance)[:, None]
        x = tf.gather(x, first + np.arange(count) * gap, axis=axis)
    return tf.transpose(x, [0, 1, 3, 2, 4, 5])


def take(index, *values):
    """The elements of all values one after the other, flattened, at the indices of a table."""
    return tf.gather(join(*(flatten(value) for value in values)), index, axis=1)


def accumulated(codes, weights, start=None, scale=0, bits=32, units=(0, 0), shift=0):
    """(weights @ codes + start) * 2**-scale, modulo an accumulator, rounded once to binary16.

    Codes and weights are multiples of 2**units[0] and 2**units[1]. A total counts
    2**(units[0] + units[1] - shift). Weights are [rows, columns], or [batch, ..., rows, columns].
    """
    if bits > 64:
        raise ValueError(f"TensorFlow has no integers for an accumulator of {bits} bits")
    left = whole_numbers(tf.cast(codes, tf.float64) * 2.0 ** -units[0])
    right = whole_numbers(tf.cast(weights, tf.float64) * 2.0 ** -units[1])
    totals = tf.matmul(left, right, transpose_b=True) * (1 << shift)
    if start is not None:
        totals = totals + tf.cast(start, tf.int64)
    if bits < 64:
        limit = 1 << bits - 1
        totals = (totals + limit & 2 * limit - 1) - limit
    smooth = tf.matmul(tf.cast(codes, tf.float64), tf.cast(weights, tf.float64), transpose_b=True)
    smooth = smooth * 2.0 ** (shift - units[0] - units[1])
    smooth = smooth if start is None else smooth + tf.cast(start, tf.float64)
    return straight(tf.cast(smooth * 2.0**-scale, tf.float32), rounded_total(totals, scale))


def whole_numbers(x):
    """Numbers as int64."""
    return tf.cast(tf.round(x), tf.int64)


def softmax(a, fractions, wholes):
    """exp(a) by its sum along the last axis: whole numbers of two tables, rounded once."""
    return straight(tf.nn.softmax(a), shares(a, fractions, wholes))


def real_stored(values):
    """A tensor of a file as a value."""
    return tf.constant(values)


def real_reals(values, shape):
    """Inputs [batch, ...] as float64; None in their shape stands for time steps."""
    return shaped(float64(values), shape)


def real_sigmoid(a):
    """1 / (1 + exp(-a))."""
    return tf.sigmoid(a)


def real_softmax(a):
    """exp(a) / sum(exp(a)) along the last axis."""
    return tf.nn.softmax(a)


def real_dense(x, weights, start=0.0, scale=0):
    """(weights @ x + start) * 2**-scale."""
    return (tf.tensordot(x, weights, [[-1], [-1]]) + start) * 2.0**-scale


def real_matmul(x, others):
    """x @ others, whose last two axes are exchanged."""
    return tf.matmul(x, others, transpose_b=True)


def real_convolution(x, weights, start=0.0, scale=0, stride=(1, 1), padding=(0, 0, 0, 0),
                dilation=(1, 1), groups=1, fill=0):
    """`dense` of every window; weights are [rows, window rows, columns, channels / groups]."""
    top, bottom, left, right = padding
    x = tf.pad(x, [(0, 0), (top, bottom), (left, right), (0, 0)], constant_values=fill)
    parts = tf.split(x, groups, -1), tf.split(tf.transpose(weights, [1, 2, 3, 0]), groups, -1)
    sums = [tf.nn.conv2d(*each, stride, "VALID", dilations=dilation)
            for each in zip(*parts, strict=True)]
    return (tf.concat(sums, -1) + start) * 2.0**-scale
