"""Dense layers of ONNX files against onnxruntime, whatever axes their inputs have."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from concord.campaigns.makers.onnx_graphs import OnnxGraph, equal, written
from concord.frontends.onnx.read import read
from concord.net.ops.pointwise import Gelu

FLOAT_MAX = np.finfo(np.float32).max


@pytest.mark.parametrize("shape", [(28, 28), (1, 28), (5, 1), (1, 28, 28), (6,)])
def test_a_flattened_input_is_a_vector(tmp_path, shape):
    graph, size = OnnxGraph(("batch", *shape)), int(np.prod(shape))
    graph.add("Flatten")
    graph.add("Gemm", graph.weight(4, size), graph.weight(4), transB=1)
    assert equal(written(tmp_path, graph)).network.shape == (size,)


def test_a_constant_that_differs_from_sample_to_sample(tmp_path):
    graph = OnnxGraph((2, 3, 4))
    graph.add("Add", graph.weight(2, 3, 4))
    with pytest.raises(ValueError, match=r"its constant \[2, 3, 4\] differs from sample to sample"):
        read(written(tmp_path, graph))


def test_whole_numbers_are_not_divided(tmp_path):
    graph = OnnxGraph(("batch", 4))
    graph.inputs[0].type.tensor_type.elem_type = 6
    graph.add("Div", graph.constant(np.array([2], np.int32)))
    graph.add("Cast", to=1)
    with pytest.raises(ValueError, match=r"whole numbers \(int32\), which are divided without a remainder"):
        read(written(tmp_path, graph))


def test_a_file_that_leaves_all_to_the_host(tmp_path):
    graph = OnnxGraph(("batch", 4))
    graph.add("Softmax", axis=1)
    with pytest.raises(ValueError, match=r"nothing in it is left for the machine.*a softmax \(Softmax\) is left"):
        read(written(tmp_path, graph))


@pytest.mark.parametrize("kind", ["MatMul", "Gemm"])
@pytest.mark.parametrize("shape", [("batch", 5, 3), (1, 5, 3), ("batch", 4, 5, 3)])
def test_a_dense_layer_of_each_vector(tmp_path, shape, kind):
    """[samples, time, features]: each time step, or pixel, alone, then all of them."""
    graph, pixels = OnnxGraph(shape), int(np.prod(shape[1:-1]))
    if kind == "Gemm":
        graph.add("Reshape", graph.constant(np.array([-1, 3])))
    graph.add(kind, graph.weight(3, 6))
    graph.add("Add", graph.weight(6))
    graph.add("Relu")
    graph.add("Reshape", graph.constant(np.array([-1, pixels * 6])))
    graph.add("Gemm", graph.weight(2, pixels * 6), graph.weight(2), transB=1)
    imported = equal(written(tmp_path, graph))
    assert imported.network.shape == (3, *shape[1:-1])
    assert imported.network.axes == (len(shape) - 2, *range(len(shape) - 2))


@pytest.mark.parametrize(("window", "attributes"), [
    ((1, 1), {}), ((3, 3), {"pads": [1, 1, 1, 1]}), ((2, 2), {"pads": [1, 0, 0, 1]}), ((1, 1), {"group": 3}),
    ((3, 3), {"dilations": [2, 2], "pads": [2, 2, 2, 2]}), ((1, 1), {"pads": [1, 1, 1, 1], "strides": [3, 3]})])
def test_convolutions_after_a_global_average(tmp_path, window, attributes):
    graph = OnnxGraph(("batch", 6, 5, 4))
    graph.add("GlobalAveragePool")
    graph.add("Conv", graph.weight(9, 6 // attributes.get("group", 1), *window), graph.weight(9), **attributes)
    graph.add("HardSwish")
    graph.add("GlobalAveragePool")
    graph.add("Conv", graph.weight(2, 9, 1, 1))
    graph.add("ReduceMean", axes=[2, 3], keepdims=0)
    imported = equal(written(tmp_path, graph))
    assert imported.indices.shape == (2, 2)


def test_a_convolution_that_makes_an_image_of_a_vector(tmp_path):
    graph = OnnxGraph(("batch", 6, 5, 4))
    graph.add("GlobalAveragePool")
    graph.add("Conv", graph.weight(9, 6, 1, 1), pads=[1, 1, 1, 1])
    with pytest.raises(ValueError, match="it makes an image of 3 x 3 pixels of a vector and zeros around it"):
        read(written(tmp_path, graph))


def test_functions_and_products_of_tensors(tmp_path):
    graph = OnnxGraph(("batch", 6))
    a = graph.add("Gemm", graph.weight(6, 5), graph.weight(5))
    graph.add("Sigmoid")
    silu = graph.add("Mul", a)
    graph.add("LeakyRelu", alpha=0.1)
    graph.add("PRelu", graph.constant(np.full(5, 0.25, np.float32)))
    graph.add("Exp")
    graph.add("Sqrt")
    graph.add("Reciprocal")
    graph.add("Mul", silu)
    graph.add("Gemm", graph.weight(5, 3), graph.weight(3))
    kinds = [node.op.kind for node in equal(written(tmp_path, graph)).network.nodes]
    assert kinds == ["dense", "sigmoid", "mul", "leaky_relu", "leaky_relu", "exp", "sqrt", "reciprocal", "mul", "dense"]


@pytest.mark.parametrize(("kind", "constants", "sentence"), [
    ("Max", [np.zeros((3, 1, 4))], "its constant .3, 1, 4. makes a larger tensor of its input .*; compare it with one"),
    ("Min", [np.zeros((1, 1, 4))], "its constant .1, 1, 4. makes a larger tensor of its input .*; compare it with one"),
    ("Max", [], "compares what the network computes with no constants; leave the node out"),
    ("Min", [0, 6], "compares what the network computes with 2 constants; compare it with one number"),
    ("Max", [FLOAT_MAX], r"it limits numbers to 3.40282e.38\.\.inf"),
    ("Min", [-FLOAT_MAX], r"it limits numbers to -inf\.\.-3.40282e.38"),
    ("Clip", [FLOAT_MAX, FLOAT_MAX], r"it limits numbers to 3.40282e.38\.\.inf"),
    ("Clip", [-np.inf, -np.inf], r"it limits numbers to -inf\.\.-inf")])
def test_limits_that_are_refused(tmp_path, kind, constants, sentence):
    graph = OnnxGraph(("batch", 4))
    graph.add(kind, *(graph.constant(np.float32(each)) for each in constants))
    with pytest.raises(ValueError, match=sentence):
        read(written(tmp_path, graph))


@pytest.mark.parametrize(("kind", "constants"), [
    ("Max", [-FLOAT_MAX]), ("Min", [FLOAT_MAX]), ("Clip", [-FLOAT_MAX, FLOAT_MAX]), ("Max", [np.zeros((1, 4))])])
def test_limits_that_change_nothing_or_are_a_relu(tmp_path, kind, constants):
    graph = OnnxGraph(("batch", 4))
    graph.add("Gemm", graph.weight(4, 4))
    graph.add(kind, *(graph.constant(np.float32(each)) for each in constants))
    equal(written(tmp_path, graph))


@pytest.mark.parametrize("half", ["", "first", "last"])
def test_the_exact_gelu(half, tmp_path):
    """As one operator, and spelled out with the error function in both orders of its factors."""
    graph = OnnxGraph(("batch", 6))
    x = graph.add("Gemm", graph.weight(6, 5), graph.weight(5))
    if half:
        graph.add("Div", graph.constant(np.float32(2**0.5)))
        graph.add("Erf")
        cumulative = graph.add("Add", graph.constant(np.float32(1)))
        if half == "first":
            graph.add("Mul", graph.constant(np.float32(0.5)), first=x)
            graph.add("Mul", cumulative)
        else:
            graph.add("Mul", x)
            graph.add("Mul", graph.constant(np.float32(0.5)))
    else:
        graph.add("Gelu")
    graph.add("Gemm", graph.weight(5, 3), graph.weight(3))
    ops = [node.op for node in equal(written(tmp_path, graph.model(20))).network.nodes]
    assert [op.kind for op in ops] == ["dense", "gelu", "dense"]
    assert ops[1].exact


def test_the_machine_comes_near_the_exact_gelu():
    x = np.linspace(-12, 12, 100_001)
    line, cube = Gelu.EXACT
    found = x / (1 + np.exp(-x * (line + cube * x**2)))
    assert np.abs(found - Gelu(exact=True).real(x, None)).max() < 0.00028


def squeeze_and_excite(gate: str) -> OnnxGraph:
    """A gate of the channels of an image, from its means."""
    graph = OnnxGraph(("batch", 3, 8, 8))
    image = graph.add("Conv", graph.weight(4, 3, 3, 3))
    graph.add("GlobalAveragePool")
    graph.add("Conv", graph.weight(2, 4, 1, 1), graph.weight(2))
    graph.add("Relu")
    graph.add("Conv", graph.weight(4, 2, 1, 1), graph.weight(4))
    graph.add(gate)
    graph.add("Mul", image)
    graph.add("Conv", graph.weight(5, 4, 3, 3))
    return graph


@pytest.mark.parametrize("gate", ["Sigmoid", "HardSigmoid"])
def test_squeeze_and_excite(tmp_path, gate):
    kinds = [node.op.kind for node in equal(written(tmp_path, squeeze_and_excite(gate))).network.nodes]
    assert kinds.count("channel_gating") == 1


def test_a_gate_of_channels_in_another_order_is_refused(tmp_path):
    graph = OnnxGraph(("batch", 3, 8, 8))
    image = graph.add("Conv", graph.weight(4, 3, 3, 3))
    graph.add("GlobalAveragePool")
    graph.add("Slice", graph.constant(np.array([3])), graph.constant(np.array([-9])), graph.constant(np.array([1])),
              graph.constant(np.array([-1])))
    graph.add("Mul", image)
    with pytest.raises(ValueError, match="n3_Mul .Mul.: it multiplies an image by numbers that are not those of its "
                                         "channels, in order; "):
        read(written(tmp_path, graph))


def test_a_refused_node_gives_no_false_reasons_to_those_after_it(tmp_path):
    """The convolution fits the channels that the refused one gives, and the last dense layer its pixels."""
    graph = OnnxGraph(("batch", 3, 12, 12))
    graph.add("ConvTranspose", graph.weight(3, 4, 2, 2), strides=[2, 2], dilations=[2, 2])
    graph.add("BatchNormalization", graph.weight(4), graph.weight(4), graph.weight(4), graph.weight(4, above=0.5))
    graph.add("Conv", graph.weight(4, 4, 3, 3))
    graph.add("Elu")
    graph.add("Flatten")
    graph.add("Gemm", graph.weight(2, 4 * 23 * 23), transB=1)
    with pytest.raises(ValueError, match="2 nodes of 6 cannot be computed\n"
                                         "  n0_ConvTranspose [^\n]*\n  n3_Elu [^\n]*$"):
        read(written(tmp_path, graph))


def test_an_embedding_is_left_to_the_host(tmp_path):
    """The import begins with the vectors; onnxruntime runs the rest of the file on them."""
    graph = OnnxGraph((3, 4))
    table = graph.weight(9, 5)
    graph.nodes.append(onnx.helper.make_node("Gather", [table, "x"], ["vectors"], name="look", axis=0))
    graph.at = "vectors"
    graph.add("Flatten")
    graph.add("Gemm", graph.weight(20, 2), graph.weight(2))
    model = graph.model()
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    network = equal(written(tmp_path, model)).network
    assert network.shape == (20,)
    (note,) = network.notes
    assert note == ("look: the host looks up the vectors of an embedding: samples are token numbers, or sequences of "
                    "the rows of its table 'c0', 9 vectors of 5 numbers")
