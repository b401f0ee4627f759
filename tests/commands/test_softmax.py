"""A softmax at the end of an imported network: on a machine that has it, and on one that leaves it to the host."""

import re
from pathlib import Path

import numpy as np
import pytest
from concord.campaigns.makers.onnx_graphs import OnnxGraph, written
from concord.datasets.read import read_data
from concord.frontends.onnx.read import read
from concord.net import graph_file as file
from concord.net import network as golden
from concord.net.layers.joins import Softmax
from concord.net.model_file import load_model
from concord.tests.command_line import done, refused

pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
MACHINE = 'based_on = "speech"\nsoftmax_words = 1\n'


def graph(end: str = "Softmax", **attributes) -> OnnxGraph:
    """A perceptron of 12 inputs and 4 outputs with an operator at its end."""
    made = OnnxGraph((1, 12))
    made.add("Gemm", made.weight(12, 8), made.weight(8))
    made.add("Relu")
    made.add("Gemm", made.weight(8, 4), made.weight(4))
    made.add(end, **attributes)
    return made


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working folder with a network, its data and a machine."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 12)).astype(np.float32), rng.integers(0, 4, 60)
    np.savez(tmp_path / "data.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
    (tmp_path / "my.toml").write_text(MACHINE)
    written(tmp_path, graph())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def probabilities(model) -> np.ndarray:
    samples = read_data("data.npz").test
    return golden.outputs(model, samples.inputs).view(np.float16).astype(float)


@pytest.mark.parametrize("arithmetic", ["integer", "bfp"])
def test_a_machine_that_has_it_computes_it(arithmetic):
    text = done("quantize", "network.onnx", "--for", "my.toml", "--data", "data.npz", "--arithmetic", arithmetic,
                "-o", "m.safetensors")
    assert "the machine computes the softmax at the end: its outputs are probabilities\n" in text
    model = load_model(Path("m.safetensors"))
    assert isinstance(model.layers[-1], Softmax)
    np.testing.assert_allclose(probabilities(model).sum(1), 1, atol=0.005)
    assert re.search(r"^0: \d class \d, probability 0\.\d+", done("predict", "m.safetensors", "--data", "data.npz"))
    done("compile", "m.safetensors", "--preset", "my.toml", "-o", "m.fw")
    assert "v_softmax" in done("disasm", "m.fw")
    text = refused("compile", "m.safetensors", "--preset", "speech", "-o", "m.fw")
    assert "its 4 elements need a softmax unit for 1 word, and the machine has none" in text


def test_another_machine_leaves_it_to_the_host():
    text = done("quantize", "network.onnx", "--for", "speech", "--data", "data.npz", "-o", "m.safetensors")
    assert ("the softmax at the end is left to the host, because the machine has no softmax unit for 4 elements "
            "(attribute softmax_words)\n") in text
    model = load_model(Path("m.safetensors"))
    assert not isinstance(model.layers[-1], Softmax)
    assert np.ptp(probabilities(model).sum(1)) > 0.1


def test_an_import_keeps_it(tmp_path):
    text = done("import", "network.onnx", "-o", "net.safetensors")
    assert "a softmax (Softmax) is left to the host, unless the machine has a softmax unit\n" in text
    assert file.load(Path("net.safetensors")).softmax


@pytest.mark.parametrize(("made", "found"), [
    (graph(axis=1), True), (graph(axis=0), False), (graph("LogSoftmax"), False), (graph("Sigmoid"), False)])
def test_only_a_softmax_over_all_outputs_counts(made, found, tmp_path):
    assert read(written(tmp_path, made, "other.onnx")).network.softmax is found


def test_scores_beside_their_softmax_are_given_as_they_are(tmp_path):
    made = graph()
    scores = made.nodes[-1].input[0]
    path = written(tmp_path, made.model(17, made.at, scores), "both.onnx")
    assert not read(path).network.softmax
    assert read(path, output=made.at).network.softmax
    assert not read(path, output=scores).network.softmax


def test_a_machine_that_holds_it_is_proposed():
    done("quantize", "network.onnx", "--for", "my.toml", "--data", "data.npz", "-o", "m.safetensors")
    done("presets", "--fit", "m.safetensors", "--preset", "speech", "-o", "fitted.toml")
    assert "softmax_words = 1" in Path("fitted.toml").read_text()
