"""Operators that see all elements of a vector at once: softmax inside a network, and normalisation over features."""

from dataclasses import replace

import numpy as np
from concord.frontends.onnx.lib.builder import Builder
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.step import FileNode, HostValue, Value
from concord.frontends.onnx.lib.views import View
from concord.frontends.onnx.nodes.arithmetic import per_channel
from concord.net.ops.reduction import FeatureNorm, SoftmaxInside


def normalization(step: FileNode, build: Builder) -> list[Value]:
    """Layer and RMS normalisation of a vector."""
    if any(step.outputs[1:]):
        raise Refused("it gives means and deviations, too", "export the network for inference")
    vector = build.flat(step.view(0))
    _check_whole(step, vector, step.attributes.get("axis", -1))
    weight, bias = (step.weights(place, what) if len(step.values) > place else None
                    for place, what in ((1, "scale"), (2, "bias")))
    centred, epsilon = step.kind == "LayerNormalization", float(step.attributes.get("epsilon", 1e-5))
    ones = np.ones(vector.source.shape)
    weight = ones if weight is None else weight
    made = per_channel(
        step, build, vector, lambda weight, bias: FeatureNorm(
            **dict(zip(("weight", "bias"), (one.copy() for one in np.broadcast_arrays(ones.astype(np.float32), weight,
                                                                                       bias)[1:]), strict=True)),
            centred=centred, epsilon=epsilon),
        {"weight": (weight, 1), "bias": (0 * ones if bias is None else bias, 0)})
    return [View(source=made.source, numbers=made.numbers.reshape(step.view(0).shape))]


def inside(step: FileNode, build: Builder) -> FileNode:
    """A step with the softmax of which it computes as a node of the network, where that is all it waits for."""
    return replace(step, values=tuple(
        _softmax(value, build) if isinstance(value, HostValue) and value.node else value for value in step.values))


def _softmax(value: HostValue, build: Builder) -> View:
    made = build.softmaxes.get(value.node.outputs)
    if made is None:
        build.forget(value.node.name)
        vector = build.flat(value.view)
        _check_whole(value.node, vector, -1)
        made = build.same(value.node, SoftmaxInside(), vector)
        made = View(source=made.source, numbers=made.numbers.reshape(value.view.shape))
        build.softmaxes[value.node.outputs] = made
    return made


def _check_whole(step: FileNode, vector: View, axis: int):
    """Refuse what does not see all elements of each sample's vector."""
    shape = step.view(0).shape
    size = int(np.prod(shape[axis:] if axis < 0 else shape[axis:]))
    whole = np.array_equal(np.sort(vector.numbers, axis=None), np.arange(vector.source.order.size))
    if not whole or size != vector.source.shape[0]:
        raise Refused(f"it normalises {size} elements of a tensor {list(shape)} at a time",
                      "the machine does so with all elements of a vector, such as the result of a Gemm")
