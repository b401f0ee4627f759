"""The functions of unquantised source in PyTorch that differ from those of `torch_functions`.

See `unquantized_numpy`.
"""

import torch
from concord.twin.vocabulary.torch_functions import shaped, tensor
from torch.nn.functional import conv2d, pad


def stored(values):
    """A tensor of a file as a value."""
    return values


def reals(values, shape):
    """Inputs [batch, ...] as float64; None in their shape stands for time steps."""
    return shaped(tensor(values), shape).double()


def clip(a, lowest, highest):
    """The numbers, not below the lowest and not above the highest one."""
    return a.clamp(lowest, highest)


def sigmoid(a):
    """1 / (1 + exp(-a))."""
    return torch.sigmoid(a)


def tanh(a):
    """The hyperbolic tangent."""
    return torch.tanh(a)


def softmax(a):
    """exp(a) / sum(exp(a)) along the last axis."""
    return torch.softmax(a, -1)


def dense(x, weights, start=0.0, scale=0):
    """(weights @ x + start) * 2**-scale."""
    return (x @ weights.T + start) * 2.0**-scale


def convolution(x, weights, start=0.0, scale=0, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1),
                groups=1, fill=0):
    """`dense` of every window; weights are [rows, window rows, columns, channels / groups]."""
    top, bottom, left, right = padding
    x = pad(x, (0, 0, left, right, top, bottom), value=fill).permute(0, 3, 1, 2)
    sums = conv2d(x, weights.permute(0, 3, 1, 2), None, stride, 0, dilation, groups)
    return (sums.permute(0, 2, 3, 1) + start) * 2.0**-scale
