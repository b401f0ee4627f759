"""Files that mix images and sequences, and LSTMs with peepholes, against onnxruntime."""

import numpy as np
import pytest
from concord.net.arithmetic.windows import TimeAxis
from concord.net.cells.peephole import PEEPHOLE
from concord.net.graph import Graph as Network
from concord.net.graph_file import load, save
from concord.net.ops.recurrent import Recurrence

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from concord.campaigns.makers.onnx_graphs import OnnxGraph, equal, written
from concord.frontends.onnx.read import read

HIDDEN = 4


def lstm(graph: OnnxGraph, inputs: int, directions: int = 1, *, peepholes: bool = False, kind: str = "LSTM"):
    """A recurrent layer of [time, samples, inputs]; the graph goes on with its vectors [time, samples, hidden]."""
    gates = {"LSTM": 4, "GRU": 3}[kind] * HIDDEN
    others = ["", "", "", graph.weight(directions, 3 * HIDDEN)] if peepholes else []
    graph.add(kind, graph.weight(directions, gates, inputs), graph.weight(directions, gates, HIDDEN),
              graph.weight(directions, 2 * gates), *others, hidden_size=HIDDEN, outputs=2,
              direction="bidirectional" if directions == 2 else "forward")


def joined(graph: OnnxGraph, directions: int = 1):
    """The hidden vectors of all time steps as [samples, features, time]."""
    graph.add("Transpose", perm=[2, 1, 3, 0])
    graph.add("Reshape", graph.constant(np.array([0, directions * HIDDEN, -1])))


def ended(graph: OnnxGraph, directions: int = 1):
    """A dense layer of the last hidden vectors."""
    graph.at = graph.nodes[-1].output[1]
    graph.add("Transpose", perm=[1, 0, 2])
    graph.add("Reshape", graph.constant(np.array([-1, directions * HIDDEN])))
    graph.add("Gemm", graph.weight(3, directions * HIDDEN), graph.weight(3), transB=1)


def kinds(network: Network) -> list[str]:
    return [node.op.kind for node in network.nodes]


def test_a_convolution_over_time_before_a_recurrent_layer(tmp_path):
    graph = OnnxGraph(("batch", 3, 9))
    graph.add("Conv", graph.weight(5, 3, 3), graph.weight(5), pads=[1, 1])
    graph.add("Relu")
    graph.add("Transpose", perm=[2, 0, 1])
    lstm(graph, 5, 2)
    ended(graph, 2)
    network = equal(written(tmp_path, graph)).network
    assert kinds(network) == ["conv", "relu", "to_sequence", "recurrent", "last", "dense"]
    assert (network.shape, network.sequence) == ((3, 9), False)
    save(network, tmp_path / "net.safetensors")
    x = np.random.default_rng(0).normal(size=(2, 3, 9))
    assert np.array_equal(load(tmp_path / "net.safetensors").run(x), network.run(x))


@pytest.mark.parametrize("time", list(TimeAxis))
def test_rows_or_columns_of_an_image_are_time_steps_whose_channels_lie_in_any_order(tmp_path, time):
    graph = OnnxGraph(("batch", 1, 6, 7))
    graph.add("Conv", graph.weight(5, 1, 3, 3), graph.weight(5))
    pixels = 4 if time is TimeAxis.COLUMNS else 5
    graph.add("Transpose", perm=[3, 0, 1, 2] if time is TimeAxis.COLUMNS else [2, 0, 1, 3])
    graph.add("Reshape", graph.constant(np.array([0, 0, 5 * pixels])))  # channel by channel
    lstm(graph, 5 * pixels)
    ended(graph)
    network = equal(written(tmp_path, graph)).network
    assert kinds(network) == ["conv", "to_sequence", "recurrent", "last", "dense"]
    assert network.nodes[1].op.time is time


@pytest.mark.parametrize("directions", [1, 2])
def test_convolutions_before_between_and_after_recurrent_layers(tmp_path, directions):
    graph = OnnxGraph(("batch", 2, 8))
    graph.add("Conv", graph.weight(3, 2, 3), graph.weight(3), pads=[1, 1])
    graph.add("Transpose", perm=[2, 0, 1])
    lstm(graph, 3, directions)
    joined(graph, directions)
    graph.add("Conv", graph.weight(6, directions * HIDDEN, 3), graph.weight(6), strides=[2])
    graph.add("Transpose", perm=[2, 0, 1])
    lstm(graph, 6, kind="GRU")
    joined(graph)
    graph.add("Conv", graph.weight(2, HIDDEN, 2), graph.weight(2))
    graph.add("Flatten")
    graph.add("MatMul", graph.weight(4, 3))
    network = equal(written(tmp_path, graph)).network
    assert kinds(network) == ["conv", "to_sequence", "recurrent", "to_image", "conv", "to_sequence", "recurrent",
                              "to_image", "conv", "flatten", "dense"]


def test_a_sequence_that_a_convolution_reads_has_a_fixed_number_of_steps(tmp_path):
    def network(time) -> OnnxGraph:
        graph = OnnxGraph((time, "batch", 3))
        lstm(graph, 3)
        joined(graph)
        graph.add("Conv", graph.weight(2, HIDDEN, 3), graph.weight(2))
        graph.add("GlobalAveragePool")
        graph.add("Flatten")
        return graph

    made = equal(written(tmp_path, network(6))).network
    assert kinds(made) == ["recurrent", "to_image", "conv", "global_average"]
    assert (made.sequence, made.steps, made.interface.steps) == (True, 6, 6)
    with pytest.raises(ValueError, match="image of 6 time steps, but a sequence has 5"):
        made.run(np.zeros((2, 5, 3)))
    with pytest.raises(ValueError, match="the file leaves the number of time steps open"):
        read(written(tmp_path, network("time")))


def test_a_linear_layer_at_each_step_and_the_mean_of_all(tmp_path):
    graph = OnnxGraph((7, "batch", 3))
    lstm(graph, 3)
    graph.add("Squeeze", graph.constant(np.array([1])))
    graph.add("MatMul", graph.weight(HIDDEN, 5))
    graph.add("Add", graph.weight(5))
    graph.add("Tanh")
    graph.add("ReduceMean", axes=[0], keepdims=0)
    graph.add("MatMul", graph.weight(5, 2))
    network = equal(written(tmp_path, graph)).network
    assert kinds(network) == ["recurrent", "dense", "tanh", "to_image", "global_average", "dense"]
    assert network.types[network.nodes[1].name].sequence


def test_a_dense_layer_of_all_time_steps(tmp_path):
    graph = OnnxGraph(("batch", 5, 3))
    graph.add("Transpose", perm=[1, 0, 2])
    lstm(graph, 3, 2)
    graph.add("Transpose", perm=[2, 0, 1, 3])
    graph.add("Reshape", graph.constant(np.array([0, -1])))
    graph.add("MatMul", graph.weight(5 * 2 * HIDDEN, 3))
    network = equal(written(tmp_path, graph)).network
    assert kinds(network) == ["recurrent", "to_image", "flatten", "dense"]


@pytest.mark.parametrize("directions", [1, 2])
def test_peepholes(tmp_path, directions):
    graph = OnnxGraph(("time", "batch", 3))
    lstm(graph, 3, directions, peepholes=True)
    ended(graph, directions)
    network = equal(written(tmp_path, graph)).network
    op = network.nodes[0].op
    assert isinstance(op, Recurrence)
    assert op.cell is PEEPHOLE
    assert all(np.ptp(vector) > 0 for one in op.directions for vector in one.vectors.values())
