"""Lowers convolutions and averages in integers, which are dense layers on the patch of each position."""

from dataclasses import replace
from math import prod

import numpy as np
from concord.net.arithmetic.line import Line
from concord.net.layers.convolution import Conv
from concord.net.layers.dense import Dense
from concord.net.layers.pooling import Average
from concord.net.lowering.lowering import dense, input_quantizer
from concord.net.lowering.rounding import binary16
from concord.net.ops.pooling import AveragePooling
from concord.spec.numbers.formats import Format

#: Format of the weights of averages.
ONES = Format(bits=2, symmetric=True)


def convolution(
    dense: Dense,
    *,
    shape: tuple[int, int, int],
    kernels: tuple[int, int, int, int],
    kind: type[Conv] = Conv,
    line: Line | None = None,
    **geometry,
) -> Conv:
    """The convolution that applies a dense layer to the patch of each position.

    Args:
        dense:    Layer of one patch, with one scale and offset of its quantiser for all inputs.
        shape:    Channels, rows and columns of the input.
        kernels:  Shape of the weights, [outputs, channels / groups, rows, columns].
        kind:     `Conv`, or `Average` for weights of 1.
        line:     What the network makes of each channel ahead of the quantiser, of which the dense layer knows nothing;
            None for nothing. With padding, all channels have the same zero.
        geometry: Stride, padding, dilation and groups, see `Conv`.
    """
    step, offset = dense.real["input"]
    per_channel = {name: None if getattr(dense, name) is None else np.full(shape[0], getattr(dense, name)[0])
                   for name in ("quant_scale", "quant_offset")}
    zero, real = 0.0 if dense.quant_scale is not None else -offset / step, dense.real
    if line is not None:
        per_channel = dict(zip(per_channel, input_quantizer(dense.name, line, step, offset), strict=True))
        zero, real = line.zero[0] if any(geometry["padding"]) else 0.0, {
            **real, "line": np.array([line.scale, line.offset])}
    same = ("name", "weights_format", "input_format", "unsigned", "start", "p", "scale", "offset", "activation",
            "float_operator")
    return kind(
        **{name: getattr(dense, name) for name in same}, **per_channel, **geometry, shape=shape, real=real,
        border=int(binary16(zero, f"layer {dense.name!r}, border")), weights=dense.weights.reshape(kernels))


def average(
    *,
    name: str,
    shape: tuple[int, int, int],
    size: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    **quantizers,
) -> Average:
    """The average of each window of `size` rows and columns, padding included; see `dense` for the quantisers."""
    channels, pixels = shape[0], prod(size)
    ones, share = np.ones((channels, pixels)), np.full(channels, 1 / pixels)
    patch = dense(
        name=name, codes=ones, gain=share, constant=np.zeros(channels), weights_format=ONES, **quantizers)
    layer = convolution(patch, shape=shape, kernels=(channels, 1, *size), kind=Average, stride=stride, padding=padding,
                        groups=channels)
    return replace(layer, float_operator=AveragePooling(window=layer.window, count_padding=True))
