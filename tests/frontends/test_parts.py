"""Parts of images, vectors and sequences that ONNX files compute with, against onnxruntime, and layers made of them."""

import concord
import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from concord.campaigns.makers.onnx_graphs import OnnxGraph, equal, layer, written
from concord.frontends.onnx.read import read
from concord.net.arithmetic.windows import Window
from concord.net.ops.pointwise import Sigmoid
from concord.net.ops.weighted import Convolution

IMAGE = ("batch", 3, 6, 8)


def halves(graph: OnnxGraph, axis: int = 1) -> tuple[str, str]:
    """The two halves of the last result."""
    first = graph.add("Split", axis=axis, outputs=2)
    return first, f"{first.removesuffix('_y')}_1"


def sliced(graph: OnnxGraph, starts: tuple[int, ...], ends: tuple[int, ...], steps: tuple[int, ...] = (1, 1),
           first: str | None = None) -> str:
    """Rows and columns of the last result."""
    return graph.add("Slice", *(graph.constant(np.array(one)) for one in (starts, ends, (2, 3), steps)), first=first)


def convolutions(path) -> list[Convolution]:
    return [node.op for node in equal(path).network.nodes if isinstance(node.op, Convolution)]


def test_convolutions_of_halves_of_the_channels(tmp_path):
    """A stage of ShuffleNet, whose channels are shuffled twice."""
    graph = OnnxGraph(IMAGE)
    graph.add("Conv", graph.weight(8, 3, 3, 3), pads=[1] * 4)
    graph.add("Relu")
    for _ in range(2):
        kept, read_on = halves(graph)
        graph.add("Conv", graph.weight(4, 4, 1, 1), graph.weight(4), first=read_on)
        graph.add("Relu")
        graph.add("Conv", graph.weight(4, 1, 3, 3), graph.weight(4), group=4, pads=[1] * 4)
        graph.add("Concat", graph.at, first=kept, axis=1)
        graph.add("Reshape", graph.constant(np.array([0, 2, 4, 6, 8])))
        graph.add("Transpose", perm=[0, 2, 1, 3, 4])
        graph.add("Reshape", graph.constant(np.array([0, 8, 6, 8])))
    graph.add("Conv", graph.weight(5, 8, 3, 3))
    graph.add("GlobalAveragePool")
    found = convolutions(written(tmp_path, graph))
    # The first layer in two halves; the second block reads all channels, with weights of 0; one half is taken.
    assert [op.weight.shape[:2] for op in found] == [(4, 3), (4, 4), (4, 1), (4, 3), (4, 8), (4, 1), (4, 8), (5, 8)]


def test_pixels_of_a_grid_and_channels_of_zeros(tmp_path):
    """A shortcut without weights of a ResNet: every second pixel, and zeros for the channels that are new."""
    graph = OnnxGraph(IMAGE)
    start = graph.add("Conv", graph.weight(4, 3, 3, 3), graph.weight(4), pads=[1] * 4)
    way = graph.add("Conv", graph.weight(8, 4, 3, 3), first=start, pads=[1] * 4, strides=[2, 2])
    sliced(graph, (0, 0), (9, 9), (2, 2), first=start)
    graph.add("Pad", graph.constant(np.array([0, 2, 0, 0, 0, 2, 0, 0])))
    graph.add("Add", way)
    graph.add("Sigmoid")
    taken = convolutions(written(tmp_path, graph))[-1]
    assert taken.window == Window(size=(1, 1), stride=(2, 2))
    assert taken.weight[:, :, 0, 0].sum(1).tolist() == [0, 0, 1, 1, 1, 1, 0, 0]


def test_a_function_of_zeros_stays_behind_them(tmp_path):
    """sigmoid(0) is 1/2, so a part with channels of zeros is not taken ahead of it."""
    graph = OnnxGraph(IMAGE)
    graph.add("Conv", graph.weight(4, 3, 1, 1))
    graph.add("Sigmoid")
    graph.add("Pad", graph.constant(np.array([0, 2, 0, 0, 0, 0, 0, 0])))
    graph.add("AveragePool", kernel_shape=[2, 2])
    equal(written(tmp_path, graph))


@pytest.mark.parametrize(("starts", "ends", "steps", "window"), [
    ((1, 1), (5, 7), (1, 1), Window(size=(3, 3))), ((0, 3), (6, 8), (1, 1), Window(size=(1, 4))),
    ((1, 0), (6, 8), (2, 3), Window(size=(2, 1), stride=(2, 3))), ((4, 2), (5, 3), (1, 1), None)])
def test_images_that_are_cut(tmp_path, starts, ends, steps, window):
    graph = OnnxGraph(IMAGE)
    graph.add("Conv", graph.weight(4, 3, 1, 1))
    graph.add("Relu")
    sliced(graph, starts, ends, steps)
    graph.add("MaxPool", kernel_shape=[1, 1])
    found = convolutions(written(tmp_path, graph))[-1]
    assert window is None or found.window == window


def test_gates_of_halves(tmp_path):
    """GLU of an image: the gate is computed of its own half alone."""
    graph = OnnxGraph(IMAGE)
    graph.add("Conv", graph.weight(6, 3, 3, 3), graph.weight(6))
    value, gate = halves(graph)
    graph.add("Mul", graph.add("Sigmoid", first=gate), first=value)
    graph.add("Conv", graph.weight(4, 3, 1, 1))
    nodes = equal(written(tmp_path, graph)).network.nodes
    assert [len(node.op.weight) for node in nodes if isinstance(node.op, Convolution)] == [3, 3, 4]


def test_numbers_for_the_channels_of_a_half(tmp_path):
    """Squeeze-and-excitation of the second half, of a batch of two."""
    graph = OnnxGraph((2, *IMAGE[1:]))
    graph.add("Conv", graph.weight(8, 3, 3, 3), graph.weight(8))
    _, image = halves(graph)
    graph.add("GlobalAveragePool", first=image)
    gate = graph.add("Sigmoid", first=graph.add("Conv", graph.weight(4, 4, 1, 1)))
    graph.add("Mul", gate, first=image)
    graph.add("GlobalAveragePool")
    graph.add("Flatten")
    graph.add("Gemm", graph.weight(4, 3))
    equal(written(tmp_path, graph))


@pytest.mark.parametrize("kind", ["vector", "sequence", "both directions"])
def test_gates_of_halves_of_vectors(tmp_path, kind):
    graph = OnnxGraph(("batch", 12) if kind == "vector" else (5, "batch", 6))
    if kind == "vector":
        graph.add("Gemm", graph.weight(12, 8), graph.weight(8))
    else:
        layer(graph, "LSTM", 2 if kind == "both directions" else 1, inputs=6)
        graph.add("Transpose", perm=[0, 2, 1, 3])
        graph.add("Reshape", graph.constant(np.array([0, 0, -1])))
    value, gate = halves(graph, axis=-1)
    graph.add("Mul", graph.add("Sigmoid", first=gate), first=value)
    if kind == "vector":
        graph.add("Gemm", graph.weight(4, 3))
    found = equal(written(tmp_path, graph)).network
    assert sum(isinstance(node.op, Sigmoid) for node in found.nodes) == 1


def test_a_cut_whose_window_would_be_large_is_refused(tmp_path):
    """The middle of a large image would be a window of 113 x 113 pixels of all channels."""
    graph = OnnxGraph((1, 3, 224, 224))
    graph.add("Conv", graph.weight(16, 3, 1, 1))
    sliced(graph, (56, 56), (168, 168))
    graph.add("Conv", graph.weight(4, 16, 3, 3))
    with pytest.raises(ValueError, match="is not an image as it is computed"):
        read(written(tmp_path, graph))


@pytest.mark.parametrize("mode", ["DCR", "CRD", None])
def test_channels_that_become_pixels(tmp_path, mode):
    graph = OnnxGraph(IMAGE)
    graph.add("Conv", graph.weight(12, 3, 3, 3), graph.weight(12), pads=[1] * 4)
    graph.add("DepthToSpace", blocksize=2, **{"mode": mode} if mode else {})
    graph.add("Conv", graph.weight(2, 3, 3, 3))
    found = convolutions(written(tmp_path, graph))
    assert [op.weight.shape[:2] for op in found] == [(3, 3)] * 4 + [(2, 3)]


def test_blocks_of_one_pixel(tmp_path):
    graph = OnnxGraph(IMAGE)
    graph.add("Conv", graph.weight(4, 3, 1, 1))
    graph.add("DepthToSpace", blocksize=1)
    graph.add("SpaceToDepth", blocksize=1)
    assert len(convolutions(written(tmp_path, graph))) == 1


def test_channels_that_do_not_fill_blocks_are_refused(tmp_path):
    graph = OnnxGraph(IMAGE)
    graph.add("Conv", graph.weight(4, 3, 1, 1))
    graph.add("DepthToSpace", blocksize=3)
    with pytest.raises(ValueError, match="has no 3 x 3 channels for each of its outputs"):
        read(written(tmp_path, graph))


@pytest.mark.parametrize("ahead", [False, True])
def test_pixels_that_become_channels(tmp_path, ahead):
    """By name, and as four slices side by side, of the input and of a layer's result."""
    graph = OnnxGraph(IMAGE)
    if ahead:
        graph.add("Conv", graph.weight(3, 3, 1, 1))
        graph.add("Relu")
    start = graph.at
    parts = [sliced(graph, (row, column), (9, 9), (2, 2), first=start) for row in (0, 1) for column in (0, 1)]
    slices = graph.add("Concat", *parts[1:], first=parts[0], axis=1)
    named = graph.add("SpaceToDepth", first=start, blocksize=2)
    ends = [graph.add("Conv", graph.weight(5, 12, 3, 3), first=each) for each in (slices, named)]
    graph.add("Add", ends[0])
    equal(written(tmp_path, graph))


def test_channels_of_the_input(tmp_path):
    graph = OnnxGraph(IMAGE)
    graph.add("Slice", *(graph.constant(np.array([one])) for one in (1, 3, 1)))
    graph.add("Conv", graph.weight(4, 2, 3, 3))
    found = equal(written(tmp_path, graph)).network
    assert (found.shape, found.nodes[0].op.weight.shape) == ((3, 6, 8), (4, 3, 3, 3))


def test_one_dimension(tmp_path):
    graph = OnnxGraph(("batch", 3, 12))
    graph.add("Conv", graph.weight(8, 3, 3), pads=[1, 1])
    value, gate = halves(graph)
    graph.add("Mul", graph.add("Sigmoid", first=gate), first=value)
    graph.add("Conv", graph.weight(2, 4, 3))
    equal(written(tmp_path, graph))


def test_pixels_on_no_grid_are_refused(tmp_path):
    graph = OnnxGraph(IMAGE)
    graph.add("Conv", graph.weight(4, 3, 1, 1))
    graph.add("Gather", graph.constant(np.array([0, 1, 3, 4])), axis=3)
    graph.add("Conv", graph.weight(4, 4, 3, 3))
    with pytest.raises(ValueError, match="is not an image as it is computed"):
        read(written(tmp_path, graph))


def rounded(graph: OnnxGraph, scale: float = 0.125) -> str:
    """The last result as integers of 8 bits, and back."""
    values = graph.constant(np.float32(scale)), graph.constant(np.int8(0))
    graph.add("QuantizeLinear", *values)
    return graph.add("DequantizeLinear", *values)


def integers(graph: OnnxGraph, *shape: int) -> str:
    """Weights that are integers of 8 bits."""
    values = graph.constant(graph.random.integers(-127, 128, shape).astype(np.int8))
    return graph.add("DequantizeLinear", graph.constant(np.float32(2**-7)), graph.constant(np.int8(0)), first=values)


def test_networks_that_are_quantised_keep_their_integers(tmp_path):
    """A layer reads one half, another one takes the other half, whose weights are the integers 0 and 1."""
    graph = OnnxGraph(IMAGE)
    start = rounded(graph)
    graph.add("Conv", integers(graph, 4, 3, 1, 1), first=start)
    rounded(graph)
    kept, read_on = halves(graph)
    graph.add("Conv", integers(graph, 2, 2, 1, 1), first=read_on)
    graph.add("Concat", kept, axis=1)
    rounded(graph)
    found = convolutions(written(tmp_path, graph))
    assert [(op.weight.shape[:2], op.grid.bits) for op in found] == [((4, 3), 8), ((2, 4), 8), ((2, 4), 2)]


def test_the_machine_takes_them(tmp_path):
    """Half the channels, pixels of blocks and a gate in one network: golden has the outputs of its own arithmetic."""
    graph = OnnxGraph((1, 3, 6, 8))
    graph.add("Conv", graph.weight(16, 3, 3, 3), pads=[1] * 4)
    graph.add("Relu")
    kept, read_on = halves(graph)
    graph.add("Conv", graph.weight(8, 8, 3, 3), first=read_on, pads=[1] * 4)
    graph.add("Concat", kept, axis=1)
    graph.add("DepthToSpace", blocksize=2, mode="CRD")
    graph.add("Conv", graph.weight(6, 4, 3, 3))
    value, gate = halves(graph)
    graph.add("Mul", graph.add("Sigmoid", first=gate), first=value)
    graph.add("GlobalAveragePool")
    x = graph.random.normal(size=(24, 3, 6, 8)).astype(np.float32)
    net = concord.load(written(tmp_path, graph))
    made = concord.quantize(net, (x, concord.run(net, x).numbers), preset="vision")
    compiled = concord.compile(made, preset="vision")
    real, quantised, golden = (concord.run(each, x[:4]).numbers for each in (net, made, compiled))
    assert np.array_equal(quantised, golden)
    assert np.abs(real - golden).max() < np.abs(real).max() / 30
