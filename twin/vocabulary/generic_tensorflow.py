"""Functions of generated source that few scripts need, in TensorFlow; see `generic_numpy` for what they compute."""

import tensorflow as tf
from concord.twin.vocabulary.tensorflow_functions import half


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
        totals = tf.bitwise.bitwise_and(totals + limit, tf.constant(2 * limit - 1, tf.int64)) - limit
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
