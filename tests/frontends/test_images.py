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
from concord.frontends.onnx.read import read


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


@pytest.mark.parametrize("size", [(8, 8), (7, 6)])
def test_average_that_would_count_padding_and_has_none(tmp_path, size):
    """PyTorch writes count_include_pad beside ceil_mode, whose last windows are cut off at the end of the image."""
    graph = OnnxGraph(("batch", 2, *size))
    graph.add("AveragePool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, count_include_pad=1)
    equal(written(tmp_path, graph.model(19)))


def padded(count: int, kind: str, **options) -> OnnxGraph:
    """A pooling behind a Pad with zeros around an image without negative numbers."""
    graph = OnnxGraph(("batch", 2, 4, 5))
    graph.add("Relu")
    graph.add("Pad", graph.constant(np.array([0, 0, count, count, 0, 0, count, count])))
    graph.add(kind, kernel_shape=[2, 2], **options)
    return graph


@pytest.mark.parametrize(("count", "kind", "options"), [
    (1, "MaxPool", {}), (1, "AveragePool", {"auto_pad": "VALID"}), (3, "AveragePool", {}),
    (1, "AveragePool", {"auto_pad": "SAME_UPPER", "count_include_pad": 1})])
def test_pooling_behind_a_pad(tmp_path, count, kind, options):
    equal(written(tmp_path, padded(count, kind, **options)))


@pytest.mark.parametrize(("count", "kind", "options", "sentence"), [
    (2, "MaxPool", {}, "a window of it lies in the padding only, and holds no pixel of the image; put less padding"),
    (1, "AveragePool", {"auto_pad": "SAME_UPPER"}, "count in its means and others do not; use one kind"),
    (1, "AveragePool", {"auto_pad": "SAME_LOWER"}, "count in its means and others do not; use one kind"),
    (1, "AveragePool", {"pads": [1, 0, 0, 0]}, "count in its means and others do not; use one kind")])
def test_pooling_behind_a_pad_that_is_refused(tmp_path, count, kind, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        read(written(tmp_path, padded(count, kind, **options)))


@pytest.mark.parametrize("axes", [(), (np.zeros(0, np.int64),)])
def test_a_mean_over_no_axes_is_its_input(tmp_path, axes):
    graph = OnnxGraph(("batch", 2, 4, 4))
    graph.add("Conv", graph.weight(3, 2, 3, 3))
    graph.add("ReduceMean", *map(graph.constant, axes), noop_with_empty_axes=1)
    graph.add("Relu")
    assert ops(equal(written(tmp_path, graph.model(18)))) == [Convolution, Relu]


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
