"""Convolutions, pooling and dense layers of ONNX files against onnxruntime."""

import numpy as np
import pytest
from concord.net import graph_file as file
from concord.net.ops.operator import Operator
from concord.net.ops.pointwise import Relu
from concord.net.ops.weighted import Convolution, Linear

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from concord.campaigns.makers.onnx_graphs import OnnxGraph, equal, written


def ops(imported) -> list[type[Operator]]:
    return [type(node.op) for node in imported.network.nodes]


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(("groups", "channels"), [(1, 4), (2, 4), (4, 4)])
def test_convolutions(tmp_path, auto_pad, groups, channels):
    graph = OnnxGraph(("batch", channels, 9, 8))
    pads = {"pads": [1, 0, 2, 1]} if auto_pad == "NOTSET" else {}
    graph.add("Conv", graph.weight(8, channels // groups, 3, 2), graph.weight(8), group=groups, strides=[2, 1],
              auto_pad=auto_pad, **pads)
    graph.add("Relu")
    graph.add("Conv", graph.weight(3, 8, 1, 1))
    imported = equal(written(tmp_path, graph))
    assert ops(imported) == [Convolution, Relu, Convolution]
    assert imported.network.shape == (channels, 9, 8)


def test_one_dimension(tmp_path):
    graph = OnnxGraph(("batch", 3, 17))
    graph.add("Conv", graph.weight(6, 3, 5), graph.weight(6), pads=[2, 1], dilations=[2])
    graph.add("Clip", graph.constant(np.float32(0)), graph.constant(np.float32(6)))
    graph.add("MaxPool", kernel_shape=[3], strides=[2], pads=[1, 1])
    graph.add("AveragePool", kernel_shape=[2], strides=[2])
    graph.add("Flatten")
    graph.add("Gemm", graph.weight(4, 18), graph.weight(4), transB=1)
    imported = equal(written(tmp_path, graph))
    assert imported.network.shape == (3, 17)
    assert imported.network.nodes[1].op.ceiling == 6


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("options", [{}, {"ceil_mode": 1}, {"pads": [1, 1, 0, 1]}, {
    "auto_pad": "SAME_UPPER"}, {"pads": [0, 1, 0, 1], "ceil_mode": 1}])
def test_pooling(tmp_path, kind, options):
    graph = OnnxGraph(("batch", 2, 8, 7))
    graph.add(kind, kernel_shape=[3, 2], strides=[2, 2], **options)
    equal(written(tmp_path, graph))


def test_average_that_counts_its_padding(tmp_path):
    graph = OnnxGraph(("batch", 2, 8, 7))
    graph.add("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    assert equal(written(tmp_path, graph)).network.nodes[0].op.count_padding


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("end", ["Flatten", "Reshape", "GlobalAveragePool", "ReduceMean"])
def test_from_image_to_dense(tmp_path, channels_last, end):
    """A flattened image with channels last reorders the columns of the weights after it."""
    graph = OnnxGraph(("batch", 6, 5, 3) if channels_last else ("batch", 3, 6, 5))
    if channels_last:
        graph.add("Transpose", perm=[0, 3, 1, 2])
    graph.add("Conv", graph.weight(4, 3, 3, 3), graph.weight(4), pads=[1, 1, 1, 1])
    graph.add("BatchNormalization", graph.weight(4), graph.weight(4), graph.weight(4), graph.weight(4, above=0.3))
    graph.add("Relu")
    if channels_last and end != "GlobalAveragePool":
        graph.add("Transpose", perm=[0, 2, 3, 1])
    size = 4 * 6 * 5 if end in ("Flatten", "Reshape") else 4
    if end == "Reshape":
        graph.add("Reshape", graph.constant(np.array([-1, size])))
    elif end == "ReduceMean":
        graph.add("ReduceMean", axes=[1, 2] if channels_last else [2, 3], keepdims=0)
    else:
        graph.add(end)
        graph.add("Flatten")
    graph.add("MatMul", graph.weight(size, 7))
    graph.add("Add", graph.weight(7))
    imported = equal(written(tmp_path, graph))
    assert imported.network.axes == ((2, 0, 1) if channels_last else (0, 1, 2))
    assert isinstance(imported.network.output.op, Linear)  # the Add is its bias


def test_padding_of_its_own_joins_the_convolution(tmp_path):
    graph = OnnxGraph(("batch", 3, 6, 5))
    graph.add("Pad", graph.constant(np.array([0, 0, 1, 0, 0, 0, 1, 2])))
    graph.add("Conv", graph.weight(4, 3, 3, 3))
    imported = equal(written(tmp_path, graph))
    assert imported.network.nodes[0].op.window.padding == (1, 1, 0, 2)


def test_branches(tmp_path):
    graph = OnnxGraph(("batch", 4, 6, 6))
    a = graph.add("Conv", graph.weight(4, 4, 3, 3), pads=[1, 1, 1, 1])
    b = graph.add("Relu", first=graph.add("Add", "x"))
    graph.add("Concat", a, first=b, axis=1)
    graph.add("GlobalAveragePool")
    graph.add("Squeeze", graph.constant(np.array([2, 3])))
    equal(written(tmp_path, graph))


def test_a_file_of_the_network_holds_all_of_it(tmp_path):
    graph = OnnxGraph(("batch", 3, 6, 5))
    graph.add("Conv", graph.weight(4, 3, 3, 3), pads=[1, 1, 1, 1])
    graph.add("Relu")
    graph.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    network = equal(written(tmp_path, graph)).network
    file.save(network, tmp_path / "network.safetensors")
    again = file.load(tmp_path / "network.safetensors")
    x = np.random.default_rng(0).normal(size=(3, 3, 6, 5))
    assert np.array_equal(network.run(x), again.run(x))
    assert (again.name, again.shape, again.axes, again.origin) == (
        network.name, network.shape, network.axes, network.origin)
