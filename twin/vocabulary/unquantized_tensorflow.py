"""The functions of unquantised source in TensorFlow that differ from those of `tensorflow_functions`.

See `unquantized_numpy`.
"""

import tensorflow as tf
from concord.twin.vocabulary.tensorflow_functions import float64, shaped


def reals(values, shape):
    """Inputs [batch, ...] as float64; None in their shape stands for time steps."""
    return shaped(float64(values), shape)


def clip(a, lowest, highest):
    """The numbers, not below the lowest and not above the highest one."""
    return tf.clip_by_value(a, lowest, highest)


def sigmoid(a):
    """1 / (1 + exp(-a))."""
    return tf.sigmoid(a)


def tanh(a):
    """The hyperbolic tangent."""
    return tf.tanh(a)


def softmax(a):
    """exp(a) / sum(exp(a)) along the last axis."""
    return tf.nn.softmax(a)


def dense(x, weights, start=0.0, scale=0):
    """(weights @ x + start) * 2**-scale."""
    return (tf.tensordot(x, weights, [[-1], [-1]]) + start) * 2.0**-scale


def convolution(x, weights, start=0.0, scale=0, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1),
                groups=1, fill=0):
    """`dense` of every window; weights are [rows, window rows, columns, channels / groups]."""
    top, bottom, left, right = padding
    x = tf.pad(x, [(0, 0), (top, bottom), (left, right), (0, 0)], constant_values=fill)
    parts = tf.split(x, groups, -1), tf.split(tf.transpose(weights, [1, 2, 3, 0]), groups, -1)
    sums = [tf.nn.conv2d(*each, stride, "VALID", dilations=dilation) for each in zip(*parts, strict=True)]
    return (tf.concat(sums, -1) + start) * 2.0**-scale
