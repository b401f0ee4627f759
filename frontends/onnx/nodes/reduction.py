"""Operators that see all elements of a vector at once: softmax inside a network, and normalisation over features."""

from dataclasses import replace

import numpy as np
from concord.frontends.onnx.lib.builder import Builder
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.step import FileNode, HostValue, Value
from concord.frontends.onnx.lib.views import SampleForm, View
from concord.frontends.onnx.nodes.arithmetic import per_channel
from concord.frontends.onnx.nodes.dense import pixels
from concord.net.ops.reduction import FeatureNorm, SoftmaxInside


def normalization(step: FileNode, build: Builder) -> list[Value]:
    """Layer and RMS normalisation of a vector."""
    if any(step.outputs[1:]):
        raise Refused("it gives means and deviations, too", "export the network for inference")
    vector = _vectors(step, step.view(0), build, step.attributes.get("axis", -1))
    weight, bias = (step.weights(index, what) if len(step.values) > index else None
                    for index, what in ((1, "scale"), (2, "bias")))
    centred, epsilon = step.kind == "LayerNormalization", float(step.attributes.get("epsilon", 1e-5))
    ones = np.ones(vector.source.shape[_CHANNELS[vector.source.form]])
    weight = ones if weight is None else weight
    made = per_channel(
        step, build, vector, lambda weight, bias: FeatureNorm(
            **dict(zip(("weight", "bias"), (one.copy() for one in np.broadcast_arrays(ones.astype(np.float32), weight,
                                                                                       bias)[1:]), strict=True)),
            centred=centred, epsilon=epsilon),
        {"weight": (weight, 1), "bias": (np.zeros(1) if bias is None else bias, 0)})
    return [View(source=made.source, numbers=made.numbers.reshape(step.view(0).shape))]


def inside(step: FileNode, build: Builder) -> FileNode:
    """A step with the softmax of which it computes as a node of the network, where that is all it waits for."""
    return replace(step, values=tuple(
        _softmax(value, build) if isinstance(value, HostValue) and value.node else value for value in step.values))


def _softmax(value: HostValue, build: Builder) -> View:
    made = build.softmaxes.get(value.node.outputs)
    if made is None:
        build.forget(value.node.name)
        vector = _vectors(value.node, value.view, build, -1)
        made = build.same(value.node, SoftmaxInside(), vector)
        made = View(source=made.source, numbers=made.numbers.reshape(value.view.shape))
        build.softmaxes[value.node.outputs] = made
    return made


def _vectors(step: FileNode, view: View, build: Builder, axis: int) -> View:
    """A tensor whose last axis has all elements of a vector, of a time step, or all channels of a pixel.

    Raises:
        Refused: it has something else there.
    """
    if axis not in (-1, len(view.shape) - 1):
        raise Refused(f"it normalises several axes of a tensor {list(view.shape)} together", "normalise the last axis")
    if view.source.form is SampleForm.OPEN and len(view.shape) > 2 and view.numbers[0, ..., 0].size > 1:
        build.image(pixels(view, view.numbers.reshape(-1, view.shape[-1])))
    if view.source.form is SampleForm.OPEN or not _along_channels(view):
        view = build.flat(view)
    if not _along_channels(view):
        raise Refused(f"it normalises {view.shape[-1]} elements of a tensor {list(view.shape)} at a time",
                      "the machine does so with all elements of a vector or time step, or all channels of a pixel")
    return view


def _along_channels(view: View) -> bool:
    """Whether the last axis has each channel of one vector, time step or pixel once."""
    order = view.source.order
    channels = _CHANNELS[view.source.form] + 1
    at = list(np.unravel_index(np.maximum(view.indices, 0), order.shape))
    channel = at.pop(channels)
    together = all((one == one[..., :1]).all() for one in at)
    return bool(together and view.shape[-1] == order.shape[channels] and (
        np.sort(channel, -1) == np.arange(order.shape[channels])).all())


#: The axis of the channels in one sample of each form.
_CHANNELS = {SampleForm.VECTOR: 0, SampleForm.SEQUENCE: 1, SampleForm.IMAGE: 0}
