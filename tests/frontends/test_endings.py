"""What stands at the end of ONNX files for the host, several results, and nodes that no output needs."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from concord.campaigns.makers.onnx_graphs import OnnxGraph, equal, written
from concord.datasets.fitting import arranged, fitted
from concord.datasets.read import read_data
from concord.frontends.onnx.compare import difference, run_file
from concord.frontends.onnx.read import read
from concord.net.ops.reduction import SoftmaxInside
from concord.workflows.original import at_random


def heads(kinds: tuple[str, str]) -> OnnxGraph:
    """Two heads of one input, behind each of which stands an operator of the host, if it is named."""
    graph = OnnxGraph(("batch", 4))
    ends = []
    for kind, size in zip(kinds, (3, 2), strict=True):
        end = graph.add("Gemm", graph.weight(4, size), first="x")
        ends.append(graph.add(kind, axis=1) if kind else end)
    graph.add("Concat", *ends[1:], first=ends[0], axis=1)
    return graph


@pytest.mark.parametrize("kinds", [("", "Softmax"), ("Softmax", ""), ("Softmax", "Softmax")])
def test_a_head_beside_one_of_the_host_is_not_dropped(tmp_path, kinds):
    with pytest.raises(ValueError, match=r"it joins several results of the network.*--output NAME"):
        read(written(tmp_path, heads(kinds)))


def test_an_activation_that_compares_is_not_dropped(tmp_path):
    """A leaky relu as `torch.where` writes it."""
    graph = OnnxGraph(("batch", 4))
    layer = graph.add("Gemm", graph.weight(4, 3))
    above = graph.add("Greater", graph.constant(np.float32(0)))
    small = graph.add("Mul", graph.constant(np.float32(0.1)), first=layer)
    graph.add("Where", layer, small, first=above)
    with pytest.raises(ValueError, match="it joins several results"):
        read(written(tmp_path, graph))


@pytest.mark.parametrize("moves", ["channels", "flipped", "rows and columns", "boxes"])
def test_images_at_the_end_in_another_order(tmp_path, moves):
    """Channels are put in order by a layer; what no layer does is refused, and the tensor before it can be chosen."""
    graph = OnnxGraph((2, 3, 4, 6))
    before = graph.add("Conv", graph.weight(6, 3, 1, 1))
    if moves == "channels":
        graph.add("Gather", graph.constant(np.array([2, 0, 1, 5, 4, 3])), axis=1)
    elif moves == "flipped":
        graph.add("Slice", *(graph.constant(np.array([one])) for one in (-1, -9, 3, -1)))
    elif moves == "rows and columns":
        graph.add("Transpose", perm=[0, 1, 3, 2])
    else:  # two boxes of three numbers at each pixel, as detectors give them
        before = graph.add("Reshape", graph.constant(np.array([2, 2, 3, 4, 6])))
        graph.add("Transpose", perm=[0, 1, 3, 4, 2])
        graph.add("Reshape", graph.constant(np.array([2, -1, 3])))
    path = written(tmp_path, graph)
    if moves == "channels":
        imported = equal(path)
        assert np.array_equal(imported.indices.reshape(-1), np.arange(2 * 6 * 4 * 6))
    else:
        with pytest.raises(ValueError, match=rf"lies in another order; give all(.|\n)*can be had: --output {before}$"):
            read(path)
    assert next(node.op for node in equal(path, output=before).network.nodes if node.name == "n0_Conv").outputs == 6


def test_heads_of_a_detector(tmp_path):
    """Boxes of two maps in one table: the refusal names the tensors of both heads, which can be chosen together."""
    graph, tables = OnnxGraph((1, 3, 8, 8)), []
    maps = [graph.add("Relu", first=graph.add("Conv", graph.weight(4, 3, 3, 3), pads=[1] * 4))]
    maps.append(graph.add("Relu", first=graph.add("Conv", graph.weight(5, 4, 3, 3), strides=[2, 2])))
    ends = [graph.add("Conv", graph.weight(6, channels, 1, 1), first=one)
            for one, channels in zip(maps, (4, 5), strict=True)]
    for end in ends:
        graph.add("Transpose", first=end, perm=[0, 2, 3, 1])
        tables.append(graph.add("Reshape", graph.constant(np.array([1, -1, 3]))))
    graph.add("Concat", tables[1], first=tables[0], axis=1)
    path = written(tmp_path, graph)
    with pytest.raises(ValueError, match=f"The network up to there can be had: --output {','.join(ends)}"):
        read(path)
    imported = equal(path, output=", ".join(ends))
    assert [size for _, size in imported.network.results] == [6 * 8 * 8, 6 * 3 * 3]
    with pytest.raises(ValueError, match="it computes no tensor 'none', which --output names"):
        read(path, output=f"{ends[0]},none")


@pytest.mark.parametrize("perm", [[0, 2, 3, 1], [0, 1, 2, 3]])
def test_images_at_the_end_with_channels_last_or_first(tmp_path, perm):
    graph = OnnxGraph((2, 3, 4, 6))
    graph.add("Conv", graph.weight(5, 3, 1, 1))
    graph.add("Transpose", perm=perm)
    notes = equal(written(tmp_path, graph)).network.notes
    assert ["as 4 x 6 x 5, with the channels last" in note for note in notes] == [True] * (perm[1] == 2)


def shaped(model: onnx.ModelProto, *sizes: int) -> onnx.ModelProto:
    """The model, whose outputs have the shape [samples, *sizes], which onnx does not infer."""
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
        for size in (0, *sizes):
            output.type.tensor_type.shape.dim.add(**({"dim_value": size} if size else {"dim_param": "batch"}))
    return model


def test_a_softmax_that_is_subtracted_is_inside_the_network(tmp_path):
    graph = OnnxGraph(("batch", 4))
    graph.add("Gemm", graph.weight(4, 3))
    end = graph.add("Softmax", axis=1)
    graph.add("Sub", end, first=graph.constant(np.float32(1)))
    assert not equal(written(tmp_path, graph)).network.softmax


@pytest.mark.parametrize("shape", [("batch", 5, 4), (1, 5, 4), ("batch", 2, 3, 4)])
def test_a_softmax_of_each_time_step_or_pixel(tmp_path, shape):
    graph, pixels = OnnxGraph(shape), int(np.prod(shape[1:-1]))
    graph.add("MatMul", graph.weight(4, 6))
    graph.add("Softmax", axis=-1)
    graph.add("MatMul", graph.weight(6, 3))
    graph.add("Reshape", graph.constant(np.array([-1, pixels * 3])))
    graph.add("Gemm", graph.weight(pixels * 3, 2))
    imported = equal(written(tmp_path, graph))
    assert any(isinstance(node.op, SoftmaxInside) for node in imported.network.nodes)


def test_what_the_host_subtracts_is_named(tmp_path):
    graph = OnnxGraph(("batch", 4))
    graph.add("Gemm", graph.weight(4, 3))
    graph.add("ArgMax", axis=1)
    graph.add("Sub", graph.constant(np.array([1])))
    notes = read(written(tmp_path, shaped(graph.model(), 1))).network.notes
    assert any("a difference (Sub) is left to the host" in note for note in notes)


def test_the_smallest_outputs_are_named(tmp_path):
    graph = OnnxGraph(("batch", 4))
    graph.add("Gemm", graph.weight(4, 3))
    graph.add("TopK", graph.constant(np.array([1])), outputs=2, largest=0)
    assert any("the smallest outputs (TopK)" in note for note in read(written(tmp_path, graph)).network.notes)


def test_a_softmax_of_parts_is_not_one_of_all(tmp_path):
    graph = OnnxGraph(("batch", 16))
    graph.add("Gemm", graph.weight(16, 6))
    graph.add("Reshape", graph.constant(np.array([-1, 3])))
    graph.add("Softmax", axis=1)
    assert not read(written(tmp_path, graph)).network.softmax


@pytest.mark.parametrize(("norm", "softmax"), [("L1", True), ("L2", False), ("MAX", False)])
def test_a_normalised_softmax(tmp_path, norm, softmax):
    graph = OnnxGraph(("batch", 4))
    graph.add("Gemm", graph.weight(4, 3))
    graph.add("Softmax", axis=1)
    graph.add("Normalizer", domain="ai.onnx.ml", norm=norm)
    assert read(written(tmp_path, shaped(graph.model(), 3))).network.softmax == softmax


def test_outputs_that_are_left_out_are_named(tmp_path):
    graph = OnnxGraph((5, "batch", 4))
    graph.add("LSTM", graph.weight(1, 12, 4), graph.weight(1, 12, 3), outputs=3, hidden_size=3)
    graph.nodes[-1].output[:] = ["", "h", "c"]
    model = graph.model(17, "h", "c")
    assert any("The output 'c' is left out" in note for note in read(written(tmp_path, model)).network.notes)


def test_nodes_that_the_chosen_output_does_not_need(tmp_path):
    graph = OnnxGraph(("batch", 4))
    wanted = graph.add("Gemm", graph.weight(4, 3))
    graph.add("Elu", first="x")
    graph.add("Gemm", graph.weight(4, 2))
    path = written(tmp_path, graph.model(17, wanted, graph.at))
    assert equal(path, output=wanted).network.shape == (4,)


@pytest.mark.parametrize(("axes", "window"), [((1,), (1, 28, 28)), ((3,), (28, 28, 1)), ((-1,), (28, 28, 1))])
def test_images_without_a_channel_axis(tmp_path, axes, window):
    """[samples, rows, columns], as MNIST comes: the graph adds the axis."""
    graph = OnnxGraph(("batch", 28, 28))
    graph.add("Unsqueeze", graph.constant(np.array(axes)))
    if window[-1] == 1:
        graph.add("Transpose", perm=[0, 3, 1, 2])
    graph.add("Conv", graph.weight(4, 1, 3, 3))
    graph.add("GlobalAveragePool")
    graph.add("Flatten")
    graph.add("Gemm", graph.weight(4, 3))
    assert equal(written(tmp_path, graph)).network.shape == (1, 28, 28)


def test_a_network_of_halves_is_compared_as_such(tmp_path):
    graph, random = OnnxGraph(("batch", 16)), np.random.default_rng(0)
    graph.inputs[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    for sizes in (16, 32), (32, 5):
        graph.add("MatMul", graph.constant(random.normal(size=sizes).astype(np.float16)))
        graph.add("Relu")
    model = shaped(graph.model(), 5)
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    imported = read(written(tmp_path, model))
    assert difference(imported) > 1e-4
    assert at_random(imported)[0]


def test_an_offset_of_pixels_that_stand_twice(tmp_path):
    graph = OnnxGraph(("batch", 2, 3, 3))
    graph.add("Conv", graph.weight(2, 2, 1, 1))
    graph.add("Gather", graph.constant(np.array([0, 0, 2])), axis=3)
    graph.add("Add", graph.weight(1, 1, 3, 3))
    graph.add("Flatten")
    graph.add("Gemm", graph.weight(18, 3))
    with pytest.raises(ValueError, match="Add"):
        read(written(tmp_path, graph))


def test_a_normalisation_that_trains(tmp_path):
    graph = OnnxGraph(("batch", 3, 4, 4))
    graph.add("BatchNormalization", *(graph.weight(3, above=0.5) for _ in range(4)), outputs=5)
    with pytest.raises(ValueError, match="training mode"):
        read(written(tmp_path, graph.model(9)))


def test_random_numbers_are_no_constants(tmp_path):
    graph = OnnxGraph(("batch", 4))
    graph.add("Gemm", graph.weight(4, 3))
    noise = graph.add("RandomNormal", shape=[3])
    graph.nodes[-1].ClearField("input")
    graph.add("Add", noise, first="n0_y")
    with pytest.raises(ValueError, match="random numbers"):
        read(written(tmp_path, graph))


def test_dense_layers_along_channels_and_along_positions(tmp_path):
    """As an MLP-Mixer has them: no sample is mixed with another."""
    graph = OnnxGraph(("batch", 6, 4))
    graph.add("MatMul", graph.weight(4, 5))
    graph.add("Relu")
    graph.add("Transpose", perm=[0, 2, 1])
    graph.add("MatMul", graph.weight(6, 7))
    graph.add("Relu")
    graph.add("Flatten")
    graph.add("Gemm", graph.weight(35, 3))
    assert equal(written(tmp_path, graph))


@pytest.mark.parametrize("kinds", [["Cast"], ["Identity"], ["Cast", "Identity"]])
def test_token_numbers_that_are_converted_before_they_are_looked_up(tmp_path, kinds):
    """As `x.long()` and Keras write it; a bag of words adds up the vectors."""
    graph, tokens = OnnxGraph(("batch", 6)), np.random.default_rng(1).integers(0, 9, (5, 6))
    table = graph.weight(9, 5)
    for kind in kinds:
        graph.add(kind, **({"to": onnx.TensorProto.INT64} if kind == "Cast" else {}))
    if "Cast" not in kinds:
        graph.inputs[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    graph.add("Gather", graph.at, first=table)
    graph.add("ReduceMean", axes=[1], keepdims=0)
    graph.add("Gemm", graph.weight(5, 2), graph.weight(2))
    imported = equal(written(tmp_path, graph))
    theirs, _ = run_file(imported, tokens, None)
    inputs, _ = arranged(tokens, imported.network.interface, "tokens")
    ours = imported.network.run(inputs.reshape(len(inputs), *imported.network.shape))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_mean_over_time(tmp_path, keepdims):
    graph = OnnxGraph(("batch", 7, 4))
    graph.add("ReduceMean", axes=[1], keepdims=keepdims)
    graph.add("Flatten")
    graph.add("Gemm", graph.weight(4, 2), graph.weight(2))
    assert equal(written(tmp_path, graph))


@pytest.mark.parametrize("shape", [("batch", 3, 5, 4), ("batch", 3, 7)])
def test_the_largest_of_all_pixels(tmp_path, shape):
    graph = OnnxGraph(shape)
    graph.add("Conv", graph.weight(6, 3, *[1] * (len(shape) - 2)))
    graph.add("GlobalMaxPool")
    graph.add("Flatten")
    graph.add("Gemm", graph.weight(6, 2))
    assert equal(written(tmp_path, graph))


def test_results_without_a_shape(tmp_path):
    """onnxruntime runs such files, and onnx finds the shape of the output by itself."""
    graph = OnnxGraph(("batch", 4))
    graph.add("Gemm", graph.weight(4, 6))
    inner = graph.add("Relu")
    graph.add("Gemm", graph.weight(6, 2))
    model = graph.model()
    del model.graph.value_info[:]
    model.graph.value_info.append(onnx.helper.make_tensor_value_info(inner, onnx.TensorProto.FLOAT, None))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    assert equal(written(tmp_path, model)).indices.shape == (2, 2)


def test_the_largest_of_one_pixel(tmp_path):
    graph = OnnxGraph(("batch", 3, 5, 4))
    graph.add("GlobalAveragePool")
    graph.add("GlobalMaxPool")
    graph.add("Flatten")
    graph.add("Gemm", graph.weight(3, 2))
    assert equal(written(tmp_path, graph))


def test_token_numbers_that_are_no_integers(tmp_path):
    """The file may take floats and convert them; data are numbers of a table if they are integers."""
    graph = OnnxGraph(("batch", 6))
    table = graph.weight(9, 5)
    graph.add("Cast", to=onnx.TensorProto.INT64)
    graph.add("Gather", graph.at, first=table)
    graph.add("Flatten")
    graph.add("Gemm", graph.weight(30, 2))
    takes = read(written(tmp_path, graph)).network.interface
    np.savez(tmp_path / "d.npz", x_test=np.ones((4, 6), np.float32), y_test=np.arange(4) % 2)
    with pytest.raises(ValueError, match="a sample is 6 numbers, as many as network takes token numbers.*int64"):
        fitted(read_data(tmp_path / "d.npz"), takes)
