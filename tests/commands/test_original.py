"""The tool that a network comes from runs the user's samples, too, and differences stop a command."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import concord
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from concord.campaigns.makers.onnx_graphs import OnnxGraph, written
from concord.datasets.read import read_data
from concord.net.model_file import load_model
from concord.tests.command_line import done, nnp, refused
from concord.workflows.imports import opened
from concord.workflows.original import CLOSE, of_array, of_data, original_of
from torch import nn

RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def perceptron(folder: Path) -> float:
    """The files of a perceptron and of its data; the share of labels that onnxruntime gives."""
    graph = OnnxGraph(("n", 12))
    for size in 8, 4:
        graph.add("Gemm", graph.weight(size, 12 if size == 8 else 8), transB=1)
        graph.add("Relu" if size == 8 else "Identity")
    written(folder, graph, "net.onnx")
    x = RNG.normal(size=(60, 12)).astype(np.float16).astype(np.float32)
    labels = onnxruntime.InferenceSession("net.onnx").run(None, {"x": x})[0].argmax(axis=1)
    labels[::5] = RNG.integers(4, size=12)
    np.savez("own.npz", x_train=x[:40], y_train=labels[:40], x_test=x[40:], y_test=labels[40:])
    right = onnxruntime.InferenceSession("net.onnx").run(None, {"x": x[40:]})[0].argmax(axis=1) == labels[40:]
    return float(right.mean())


def test_the_report_has_the_measure_of_onnxruntime(folder):
    share = perceptron(folder)
    said = " ".join(done("verify", "net.onnx", "--data", "own.npz", "--machine", "golden", "--report", "out").split())
    assert f"accuracy, onnxruntime │ {share:.2%}" in said
    record = json.loads(Path("out/verify.json").read_text())[0]
    assert record["measures"]["onnxruntime"] == record["measures"]["FP32"] == {"accuracy": share}
    assert record["original"]["by"] == "onnxruntime"
    assert record["original"]["samples"] == 20
    assert record["original"]["difference"] < CLOSE
    assert f"accuracy, onnxruntime</th><td>{share:.2%}" in "".join(Path("out/verify.html").read_text().split("\n"))
    for words in ("quantize", "net.onnx"), ("train", "net.onnx", "--epochs", "1,0"):
        said = " ".join(done(*words, "--for", "tiny", "--data", "own.npz", "-o", "m.safetensors").split())
        assert "onnxruntime: outputs for 20 samples differ by at most" in said
        assert f"accuracy {share:.2%}" in said


def test_without_onnxruntime_the_report_says_so(folder, monkeypatch):
    perceptron(folder)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    found = nnp("verify", "net.onnx", "--data", "own.npz", "--machine", "golden", "--report", "out")
    assert found.exit_code == 0
    assert "onnxruntime: not measured: onnxruntime is not installed" in " ".join(found.stdout.split())
    record = json.loads(Path("out/verify.json").read_text())[0]
    assert record["not_measured"]["onnxruntime"] == "onnxruntime is not installed"
    assert "not measured: onnxruntime is not installed" in Path("out/verify.html").read_text()
    assert "not measured" in done("quantize", "net.onnx", "--for", "tiny", "--data", "own.npz", "-o", "m.safetensors")


def test_files_are_compared_when_they_are_loaded(folder, monkeypatch):
    perceptron(folder)
    assert not concord.load("net.onnx").floating.notes
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    (note,) = concord.load("net.onnx").floating.notes
    assert "Not compared with the file, because onnxruntime is not installed" in note


def test_a_network_that_was_imported_before_has_no_tool(folder):
    perceptron(folder)
    done("import", "net.onnx", "-o", "net.safetensors")
    assert "not measured: the network does not come from an ONNX file here" in " ".join(done(
        "quantize", "net.safetensors", "--for", "tiny", "--data", "own.npz", "-o", "m.safetensors").split())
    assert load_model("m.safetensors").axes.file == (12,)


def test_a_wrong_import_is_stopped(folder):
    perceptron(folder)
    network, imported = opened(folder / "net.onnx")
    dense = network.nodes[0]
    weight = dense.op.weight.copy()
    weight[0, 0] += 0.01
    wrong = replace(network, nodes=(dense.changed(weight=weight), *network.nodes[1:]))
    data = read_data("own.npz")
    assert of_data(network, original_of(imported), data).difference < CLOSE
    with pytest.raises(ValueError, match="net is not what onnxruntime computes: on 20 samples, outputs differ by"):
        of_data(wrong, original_of(imported), data)
    x = RNG.normal(size=(10, 12))
    assert of_array(network, original_of(imported), x, "x.npy").samples == 10
    with pytest.raises(ValueError, match=r"x\.npy: net is not what onnxruntime computes"):
        of_array(wrong, original_of(imported), x, "x.npy")


def test_outputs_in_another_order_than_the_labels_are_stopped(folder):
    graph = OnnxGraph(("n", 4, 4, 3))
    graph.add("Transpose", perm=(0, 3, 1, 2))
    graph.add("Conv", graph.weight(2, 3, 3, 3), pads=[1, 1, 1, 1])
    graph.add("Transpose", perm=(0, 2, 3, 1))
    written(folder, graph, "net.onnx")
    x = RNG.normal(size=(30, 4, 4, 3)).astype(np.float16).astype(np.float32)
    y = onnxruntime.InferenceSession("net.onnx").run(None, {"x": x})[0]
    np.savez("own.npz", x_train=x[:20], y_train=y[:20], x_test=x[20:], y_test=y[20:])
    assert "the order of its outputs is not that of the labels" in refused(
        "quantize", "net.onnx", "--for", "vision", "--data", "own.npz", "-o", "m.safetensors")


@pytest.mark.parametrize("first", ["time", "samples"])
def test_sequences_of_any_length_in_either_order(folder, first):
    graph = OnnxGraph(("t", "n", 3) if first == "time" else ("n", "t", 3))
    if first == "samples":
        graph.add("Transpose", perm=(1, 0, 2))
    graph.add("LSTM", graph.weight(1, 20, 3), graph.weight(1, 20, 5), outputs=2, hidden_size=5)
    graph.add("Squeeze", graph.constant(np.array([0])), first=graph.at.replace("_y", "_1"))
    graph.add("Gemm", graph.weight(4, 5), transB=1)
    written(folder, graph, "net.onnx")
    x, lengths = RNG.normal(size=(9, 6, 3)), np.array([6, 3, 4, 6, 3, 6, 1, 6, 2])
    np.savez("own.npz", x_test=x, lengths_test=lengths, x_train=x, lengths_train=lengths)
    network, imported = opened(folder / "net.onnx")
    found = of_data(network, original_of(imported), read_data("own.npz"))
    assert found.samples == 9
    assert 0 < found.difference < CLOSE


def test_states_of_another_size_than_the_weights_are_refused(folder):
    graph = OnnxGraph((5, 2, 3))
    state, cell = graph.constant(np.zeros((1, 2, 4), np.float32)), graph.constant(np.zeros((1, 2, 6), np.float32))
    weights = graph.weight(1, 16, 3), graph.weight(1, 16, 4)
    graph.add("LSTM", *weights, "", "", state, cell, outputs=2, hidden_size=4)
    graph.add("Squeeze", graph.constant(np.array([0])), first=graph.at.replace("_y", "_1"))
    graph.add("Gemm", graph.weight(4, 4), transB=1)
    ends = [onnx.helper.make_tensor_value_info(graph.at, onnx.TensorProto.FLOAT, (2, 4))]
    made = onnx.helper.make_graph(graph.nodes, "graph", graph.inputs, ends, graph.tensors)
    opset = [onnx.helper.make_opsetid("", 17)]
    written(folder, onnx.helper.make_model(made, opset_imports=opset, ir_version=8), "net.onnx")
    assert "its first state has the shape [1, 2, 6], but its weights are for 4 hidden elements" in refused(
        "import", "net.onnx")


class Projected(nn.Module):
    """An LSTM whose export loses its projection."""

    def __init__(self):
        super().__init__()
        self.lstm, self.dense = nn.LSTM(4, 8, proj_size=5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.dense(self.lstm(x)[0][:, -1])


class Changing(nn.Module):
    """A module that computes something else while it is exported."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(4, 3)

    def forward(self, x):
        return self.dense(x) if torch.onnx.is_in_onnx_export() else self.dense(x) + 0.01


def test_a_module_is_compared_with_its_import():
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="leave proj_size out"):
        concord.load(Projected(), torch.zeros(2, 6, 4))
    with pytest.raises(ValueError, match="changing is not what PyTorch computes: on 2 samples"):
        concord.load(Changing(), torch.zeros(2, 4))
    for module, shape in ((nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=1)), (2, 4)),
                          (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)), (1, 3, 4, 4))):
        network = concord.load(module.eval(), torch.zeros(shape))
        assert network.original.by == "PyTorch"
        assert not any("not compared" in note for note in network.floating.notes)
        x = RNG.normal(size=(20, *shape[1:])).astype(np.float32)
        data = {"x": x, "y": module(torch.from_numpy(x)).argmax(dim=1).numpy()}
        verified = concord.verify(network, data, machine="golden", samples="all", report="out")
        assert verified.measures["PyTorch"]["accuracy"] >= 0.75
        assert verified.measures["PyTorch"] == verified.measures["FP32"]


def test_a_measure_that_neither_run_defines_is_no_difference():
    """No time step of the test set has a class, so that no share of them is right."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))  # at each time step
    network = concord.load(module, torch.zeros(1, 5, 4), name="steps")
    x = RNG.normal(size=(30, 5, 4)).astype(np.float32)
    labels = RNG.integers(3, size=(30, 5))
    labels[20:] = -1
    arrays = {"x_train": x[:20], "y_train": labels[:20], "x_test": x[20:], "y_test": labels[20:]}
    model = concord.quantize(network, arrays, preset="speech")
    assert np.isnan(model.measures["FP32"])
