"""What a twin in TensorFlow is beside its functions: gradients that pass roundings, and training."""

import tensorflow as tf


@tf.custom_gradient
def straight(smooth, exact):
    """The exact value; its gradient is that of the smooth one, whatever rounded it."""
    def gradients(gradient):
        return tf.cast(gradient, smooth.dtype), None

    return tf.identity(exact), gradients


class Curve:
    """A function of binary16 numbers by the table of its results for all 65,536 bit patterns."""

    def __init__(self, table, smooth):
        self.table, self.smooth = tf.cast(table, tf.float32), smooth

    def __call__(self, a):
        index = tf.cast(tf.bitcast(tf.cast(a, tf.float16), tf.uint16), tf.int32)
        return straight(self.smooth(a), tf.gather(self.table, index))


def train(twin, name, function, **settings):
    """Make a tensor of a twin a variable that a function rounds whenever it is read; once."""
    if name not in twin.parameters:
        twin.parameters[name] = tf.Variable(getattr(twin, name), name=name)
        twin.roundings[name] = lambda values: tf.cast(function(values, **settings), values.dtype)
        delattr(twin, name)
