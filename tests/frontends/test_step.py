"""Names of nodes."""

import pytest
from concord.frontends.onnx.lib.step import FileNode


@pytest.mark.parametrize(("name", "weights", "label"), [
    ("net/activation/Relu;net/conv2d/BiasAdd;net/conv2d/Conv2D1", "w", "net_activation_Relu"),
    ("/conv1/Conv", "conv1.weight", "conv1"), ("1", "w", "layer_1"), (";", "w", "Conv")])
def test_labels(name, weights, label):
    step = FileNode(name=name, kind="Conv", attributes={}, values=(), names=("x", weights), outputs=("y",), opset=17,
                    proto=None)
    assert step.label() == label
