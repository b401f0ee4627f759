"""The functions of unquantised source that differ from those of `numpy_functions`: they compute in float64.

Numbers are float64, and nothing is rounded to fewer bits. The layout of tensors is that of `numpy_functions`. The
functions of another framework's file whose names begin with `real_` replace these.
"""

import numpy as np
import numpy as xp
from concord.twin.vocabulary.layout import *


def reals(values, shape):
    """Inputs [batch, ...] as float64; None in their shape stands for time steps."""
    return shaped(np.asarray(values), shape).astype(np.float64)


def clip(a, lowest, highest):
    """The numbers, not below the lowest and not above the highest one."""
    return xp.clip(a, lowest, highest)


def sigmoid(a):
    """1 / (1 + exp(-a)), for any a."""
    return np.exp(-np.logaddexp(0, -a))


def tanh(a):
    """The hyperbolic tangent."""
    return xp.tanh(a)


def exp(a):
    """The exponential."""
    return xp.exp(a)


def reciprocal(a):
    """1 / a."""
    return 1 / a


def rsqrt(a):
    """1 / sqrt(a)."""
    return 1 / xp.sqrt(a)


def sqrt(a):
    """The square root."""
    return xp.sqrt(a)


def total(a):
    """The sum along the last axis."""
    return xp.sum(a, axis=-1, keepdims=True)


def largest(a):
    """The largest element along the last axis."""
    return xp.max(a, axis=-1, keepdims=True)


def softmax(a):
    """exp(a) / sum(exp(a)) along the last axis."""
    powers = np.exp(a - a.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def dense(x, weights, start=0.0, scale=0):
    """(weights @ x + start) * 2**-scale."""
    return (x @ weights.T + start) * 2.0**-scale


def matmul(x, others):
    """x @ others, whose last two axes are exchanged."""
    return x @ others.mT


def convolution(x, weights, start=0.0, scale=0, stride=(1, 1), padding=(0, 0, 0, 0),
                dilation=(1, 1), groups=1, fill=0):
    """`dense` of every window; weights are [rows, window rows, columns, channels / groups]."""
    seen = windows(x, weights.shape[1:3], stride, padding, dilation, fill)
    seen = seen.reshape(*seen.shape[:5], groups, weights.shape[-1])
    kernels = weights.reshape(groups, -1, *weights.shape[1:])
    sums = np.einsum("brchwgi,gohwi->brcgo", seen, kernels, optimize=True)
    return (sums.reshape(*seen.shape[:3], len(weights)) + start) * 2.0**-scale
