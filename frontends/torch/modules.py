"""Modules of PyTorch as operators, with the windows of those that see images.

A one-dimensional module becomes an operator on images of one row.
"""

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import torch
from concord.net.arithmetic.windows import Window
from concord.net.ops.operator import Operator, Shape
from concord.net.ops.pointwise import Gelu, LeakyRelu, Relu, Sigmoid, Tanh, limits
from concord.net.ops.pooling import AveragePooling, MaxPooling
from concord.net.ops.reduction import FeatureNorm, SoftmaxInside
from concord.net.ops.reshape import Enlarging
from concord.net.ops.scale import BatchNorm
from concord.net.ops.transposed import phases, result_size
from concord.net.ops.weighted import Convolution, Linear
from torch import nn

#: No zeros left, right, above and below.
NO_BORDER = (0, 0, 0, 0)
#: Modules whose result is their input in evaluation.
PASSING = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
#: Modules of images of one dimension, which have one row.
LINES = (nn.Conv1d, nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d)
#: Transposed convolutions, which become several operators.
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d)
#: From a module, the shape of its input without zeros around it, and these zeros (left, right, above, below).
Make = Callable[[nn.Module, Shape, tuple[int, ...]], Operator]


def unsupported(module: nn.Module) -> str | None:
    """Which options of a module have no operator and what to use instead, or None."""
    match module:
        case nn.Conv2d() | nn.Conv1d():
            if module.padding_mode != "zeros":
                return "use a padding of zeros"
        case nn.ConvTranspose2d() | nn.ConvTranspose1d():
            if set(module.dilation) != {1}:
                return "a transposed convolution has a dilation of 1"
        case nn.Upsample():
            if module.mode != "nearest":
                return 'use the mode "nearest"'
        case nn.Hardtanh():
            try:
                if limits(module.min_val, module.max_val) is None:
                    return "no number of binary16 is beyond its limits: leave it out"
            except ValueError as error:
                return str(error)
        case nn.Softmax():
            if module.dim not in (1, -1):
                return "a softmax over the elements of a vector (dim=-1) is needed"
        case nn.LayerNorm() | nn.RMSNorm():
            if len(module.normalized_shape) != 1:
                return "normalise vectors: flatten images before"
        case nn.MaxPool2d() | nn.MaxPool1d():
            if module.ceil_mode or module.return_indices:
                return "use no ceil_mode and no return_indices"
        case nn.AvgPool2d() | nn.AvgPool1d():
            padded = module.padding not in (0, (0,), (0, 0))
            if module.ceil_mode or getattr(module, "divisor_override", None) or (
                    padded and not module.count_include_pad):
                return "use no ceil_mode, no divisor_override, and count the padding in (count_include_pad)"
        case nn.AdaptiveAvgPool2d() | nn.AdaptiveAvgPool1d():
            if module.output_size not in (1, (1,), (1, 1)):
                return "use an average over the whole image, output_size 1"
    return None


def window(module: nn.Module, shape: Shape, zeros: Sequence[int]) -> Window:
    """The window of a convolution or pooling.

    Args:
        module: The module.
        shape:  Channels, rows and columns of its input, without the zeros around it.
        zeros:  Zeros left, right, above and below the input, beside the padding of the module.
    """
    left, right, above, below = zeros
    if isinstance(module, nn.AdaptiveAvgPool2d | nn.AdaptiveAvgPool1d):
        return Window(size=(above + shape[1] + below, left + shape[2] + right), padding=(above, below, left, right))
    line = isinstance(module, LINES)
    size, stride, dilation = (
        _pair(getattr(module, name, 1), 1, line) for name in ("kernel_size", "stride", "dilation"))
    if module.padding == "same":  # an odd number is one larger at the end
        totals = [step * (along - 1) for step, along in zip(dilation, size, strict=True)]
        own = [part for total in totals for part in (total // 2, total - total // 2)]
    else:
        down, across = _pair(0 if module.padding == "valid" else module.padding, 0, line)
        own = down, down, across, across
    added = zip(own, (above, below, left, right), strict=True)
    return Window(size=size, stride=stride, dilation=dilation, padding=tuple(a + b for a, b in added))


def _pair(value: int | Sequence[int], least: int, line: bool) -> tuple[int, int]:
    """A number for each axis; that of the rows of a line is `least`."""
    if line:
        return least, value if isinstance(value, int) else value[0]
    return (value, value) if isinstance(value, int) else tuple(value)


def numbers(tensor: torch.Tensor | None, like: int = 0, value: float = 0.0) -> np.ndarray:
    """float32 numbers of a parameter; `like` times a value where there is none."""
    return np.full(like, value, np.float32) if tensor is None else tensor.detach().float().numpy().copy()


def _conv(module: nn.Conv1d | nn.Conv2d, shape: Shape, zeros: tuple[int, ...]) -> Convolution:
    weight = numbers(module.weight)
    return Convolution(weight=weight[:, :, None] if weight.ndim == 3 else weight,
                       bias=numbers(module.bias, len(weight)), window=window(module, shape, zeros),
                       groups=module.groups)


def _linear(module: nn.Linear, shape: Shape, zeros: tuple[int, ...]) -> Linear:
    if shape != (module.in_features,):
        raise ValueError(f"a dense layer of {module.in_features} inputs sees samples of {list(shape)}; flatten them, "
                         "so that it reads all of a sample")
    return Linear(weight=numbers(module.weight), bias=numbers(module.bias, module.out_features))


def _batch_norm(module: nn.BatchNorm1d | nn.BatchNorm2d, shape: Shape, zeros: tuple[int, ...]) -> BatchNorm:
    channels = module.num_features
    return BatchNorm(weight=numbers(module.weight, channels, 1.0), bias=numbers(module.bias, channels),
                     mean=numbers(module.running_mean), variance=numbers(module.running_var), epsilon=module.eps)


def _norm(module: nn.LayerNorm | nn.RMSNorm, *, centred: bool) -> FeatureNorm:
    elements = prod(module.normalized_shape)
    epsilon = module.eps if module.eps is not None else float(np.finfo(np.float32).eps)
    return FeatureNorm(weight=numbers(module.weight, elements, 1.0), epsilon=epsilon, centred=centred,
                       bias=numbers(getattr(module, "bias", None), elements))


def _average(module: nn.Module, shape: Shape, zeros: tuple[int, ...]) -> AveragePooling:
    return AveragePooling(window=window(module, shape, zeros), count_padding=True)


def _maximum(module: nn.Module, shape: Shape, zeros: tuple[int, ...]) -> MaxPooling:
    return MaxPooling(window=window(module, shape, zeros))


def _enlarging(module: nn.Upsample, shape: Shape, zeros: tuple[int, ...]) -> Enlarging:
    fixed = module.size is not None
    found = np.divide(module.size, shape[1:]) if fixed else np.broadcast_to(module.scale_factor, 2)
    if (found < 1).any() or (found != np.round(found)).any():
        raise ValueError(f"it enlarges images by {found.tolist()}; use whole factors")
    return Enlarging(factor=tuple(map(int, found)))


def phases_of(module: nn.ConvTranspose1d | nn.ConvTranspose2d, shape: Shape) -> tuple[list[Convolution], Enlarging]:
    """The convolutions of a transposed convolution, and what puts their results side by side.

    Raises:
        ValueError: the result is no multiple of the stride.
    """
    line, weight = isinstance(module, nn.ConvTranspose1d), numbers(module.weight)
    stride, more = _pair(module.stride, 1, line), _pair(module.output_padding, 0, line)
    down, across = _pair(module.padding, 0, line)
    weight, padding = weight[:, :, None] if line else weight, (down, down, across, across)
    made = result_size(shape[1:], weight.shape[2:], stride, padding, more)
    found = phases(weight, numbers(module.bias, module.out_channels), groups=module.groups, size=shape[1:],
                   stride=stride, padding=padding, made=made)
    return found, Enlarging(factor=stride, shuffled=True)


#: How the operator of a module is made.
OPERATORS: dict[type[nn.Module], Make] = {
    nn.Conv2d: _conv, nn.Conv1d: _conv, nn.Linear: _linear, nn.BatchNorm1d: _batch_norm, nn.BatchNorm2d: _batch_norm,
    nn.MaxPool2d: _maximum, nn.MaxPool1d: _maximum, nn.Upsample: _enlarging, nn.UpsamplingNearest2d: _enlarging,
    **dict.fromkeys((nn.AvgPool2d, nn.AvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool1d), _average),
    **dict.fromkeys((nn.ReLU6, nn.Hardtanh), lambda module, shape, zeros: limits(module.min_val, module.max_val)),
    nn.ReLU: lambda module, shape, zeros: Relu(), nn.Sigmoid: lambda module, shape, zeros: Sigmoid(),
    nn.Tanh: lambda module, shape, zeros: Tanh(),
    nn.SiLU: lambda module, shape, zeros: Sigmoid(),  # the product with its input follows
    nn.GELU: lambda module, shape, zeros: Gelu(exact=module.approximate == "none"),
    nn.LeakyReLU: lambda module, shape, zeros: LeakyRelu(slope=module.negative_slope),
    nn.Softmax: lambda module, shape, zeros: SoftmaxInside(),
    nn.LayerNorm: lambda module, shape, zeros: _norm(module, centred=True),
    nn.RMSNorm: lambda module, shape, zeros: _norm(module, centred=False)}
#: Modules that multiply or add zeros around their input as they do pixels.
COUNTING_ZEROS = (nn.Conv1d, nn.Conv2d, nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d)


