"""Recurrent layers of ONNX files against onnxruntime."""

import numpy as np
import pytest
from concord.net.ops.pointwise import Relu
from concord.net.ops.recurrent import Recurrence
from concord.net.ops.sequences import Last
from concord.net.ops.weighted import Linear

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from concord.campaigns.makers.onnx_graphs import HIDDEN, INPUTS, OnnxGraph, equal, layer, written
from concord.frontends.onnx.read import read


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("form", [("LSTM", {}), ("GRU", {"linear_before_reset": 1}), ("GRU", {}), ("RNN", {}), (
    "RNN", {"activations": ["Relu"]})])
@pytest.mark.parametrize("batch_first", [False, True])
def test_last_hidden_vectors(tmp_path, form, directions, batch_first):
    kind, attributes = form
    if "activations" in attributes:
        attributes = {"activations": ["Relu"] * directions}
    graph = OnnxGraph(("batch", "time", INPUTS) if batch_first else ("time", "batch", INPUTS))
    if batch_first:
        graph.add("Transpose", perm=[1, 0, 2])
    layer(graph, kind, directions, **attributes)
    graph.at = graph.nodes[-1].output[1]
    graph.add("Transpose", perm=[1, 0, 2])
    graph.add("Reshape", graph.constant(np.array([-1, directions * HIDDEN])))
    graph.add("Gemm", graph.weight(2, directions * HIDDEN), graph.weight(2), transB=1)
    imported = equal(written(tmp_path, graph))
    assert [type(node.op) for node in imported.network.nodes][1:] == [Last, Linear]
    assert imported.network.sequence
    assert imported.network.shape == (INPUTS,)


@pytest.mark.parametrize("fixed", [False, True])
def test_last_time_step_behind_two_layers(tmp_path, fixed):
    graph = OnnxGraph((2, 6, INPUTS) if fixed else ("batch", "time", INPUTS))
    graph.add("Transpose", perm=[1, 0, 2])
    for inputs in (INPUTS, HIDDEN):
        layer(graph, "LSTM", 1, inputs)
        graph.add("Squeeze", graph.constant(np.array([1])))
    graph.add("Transpose", perm=[1, 0, 2])
    graph.add("MatMul", graph.weight(HIDDEN, 5))  # at each time step, and only the last one is taken
    graph.add("Relu")
    graph.add("Gather", graph.constant(np.array(-1)), axis=1)
    graph.add("MatMul", graph.weight(5, 2))
    imported = equal(written(tmp_path, graph))
    assert [type(node.op) for node in imported.network.nodes] == [
        Recurrence, Recurrence, Last, Linear, Relu, Linear]


def test_both_directions_meet_at_their_own_ends(tmp_path):
    """The last time step of the backward direction has seen one input alone, and is refused."""
    graph = OnnxGraph(("time", "batch", INPUTS))
    layer(graph, "GRU", 2)
    graph.add("Gather", graph.constant(np.array(-1)), axis=0)
    graph.add("Transpose", perm=[1, 0, 2])
    graph.add("Reshape", graph.constant(np.array([-1, 2 * HIDDEN])))
    graph.add("MatMul", graph.weight(2 * HIDDEN, 2))
    with pytest.raises(ValueError, match="n4_MatMul .MatMul.: it reads other time steps.*h_n in PyTorch"):
        read(written(tmp_path, graph))


@pytest.mark.parametrize(("index", "pattern"), [(4, "lengths of its own"), (5, "first state is not zero")])
def test_what_a_layer_must_not_have(tmp_path, index, pattern):
    graph = OnnxGraph((6, 2, INPUTS))
    layer(graph, "GRU", 1)
    value = np.array([3, 6], np.int32) if index == 4 else np.ones((1, 2, HIDDEN), np.float32)
    names = list(graph.nodes[-1].input) + [""] * (index - 4) + [graph.constant(value)]
    graph.nodes[-1].ClearField("input")
    graph.nodes[-1].input.extend(names)
    graph.at = graph.nodes[-1].output[1]
    graph.add("Squeeze", graph.constant(np.array([0])))
    with pytest.raises(ValueError, match=pattern):
        read(written(tmp_path, graph))


@pytest.mark.parametrize(("directions", "options", "sentence"), [
    (1, {"clip": 0.0}, "it limits its gates .clip.; leave clip out"),
    (2, {"activations": ["Tanh"]}, "functions are tanh, but it needs 2 of them, 1 for each direction; name those"),
    (2, {"activations": ["Relu"]}, "functions are relu, but it needs 2 of them, 1 for each direction; name those")])
def test_options_that_a_layer_must_not_have(tmp_path, directions, options, sentence):
    graph = OnnxGraph((6, 2, INPUTS))
    layer(graph, "RNN", directions, **options)
    with pytest.raises(ValueError, match=sentence):
        read(written(tmp_path, graph))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_lengths(tmp_path, kind):
    """A shorter sequence gives what it gives alone, in both directions."""
    graph = OnnxGraph(("time", "batch", INPUTS))
    layer(graph, kind, 2, **({"linear_before_reset": 1} if kind == "GRU" else {}))
    graph.at = graph.nodes[-1].output[1]
    graph.add("Transpose", perm=[1, 0, 2])
    graph.add("Reshape", graph.constant(np.array([-1, 2 * HIDDEN])))
    network = equal(written(tmp_path, graph)).network
    x = np.random.default_rng(0).normal(size=(3, 7, INPUTS))
    lengths = np.array([7, 2, 5])
    together = network.run(x, lengths)
    for row, length in enumerate(lengths):
        assert np.allclose(together[row], network.run(x[row:row + 1, :length])[0], rtol=0, atol=1e-12)
