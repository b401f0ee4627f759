"""Networks that are quantised already, against onnxruntime: the same bits where scales are powers of two."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from concord.net import graph_file as file
from concord.net.model_file import load_model
from concord.net.network import forward
from concord.nnp.main import app
from concord.workflows.prequantized import difference, kept, model_of
from typer.testing import CliRunner

pytest.importorskip("onnxruntime")
from concord.campaigns.makers.integer_graphs import IntegerGraph, clipped, dense, images, qonnx
from concord.campaigns.makers.onnx_graphs import written
from concord.campaigns.zoo.quantized import ENTRIES
from concord.frontends.onnx.compare import outputs
from concord.frontends.onnx.read import read

SAMPLES = 64


def maxima_of_integers() -> onnx.ModelProto:
    """A product and a sum read maxima of integers, and integers after which maxima stand."""
    graph = IntegerGraph((1, 2, 8, 8))
    graph.qdq(0.5)
    graph.add("Conv", graph.integers(0.5, 4, 2, 3, 3, largest=1), graph.bias(4, 0.25), pads=[1, 1, 1, 1])
    graph.add("Relu")
    at = graph.qdq(0.5)
    graph.add("Conv", graph.integers(0.5, 4, 4, 2, 2, largest=1), graph.bias(4, 0.25), strides=[2, 2])
    other = graph.qdq(0.5)
    graph.at = at
    maxima = graph.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    graph.add("Conv", graph.integers(0.5, 4, 4, 1, 1, largest=1), graph.bias(4, 0.25), first=maxima)
    graph.qdq(0.5)
    graph.add("Add", other)
    graph.add("Add", maxima)
    graph.qdq(1.0)
    graph.add("MaxPool", kernel_shape=[4, 4])
    graph.add("Flatten")
    graph.add("Gemm", graph.integers(0.25, 5, 4, largest=1), graph.bias(5, 0.125), transB=1)
    return graph.model(21)


@pytest.mark.parametrize("make", [
    dense, lambda: dense(end=True), images, maxima_of_integers, clipped,
    lambda: images(np.int8(-128)), lambda: qonnx(False), lambda: qonnx(True)])
def test_the_same_bits_as_onnxruntime(tmp_path, make):
    imported = read(written(tmp_path, make()))
    made = kept(imported.network, "trainer")
    assert made.inexact == {}
    x = np.random.default_rng(1).normal(0, 4, (SAMPLES, *imported.network.shape)).astype(np.float16)
    bits = np.ascontiguousarray(x.reshape(SAMPLES, -1)).view(np.uint16)
    found = forward(model_of(made, "kept", None, ""), bits)[-1].outputs.view(np.float16)
    theirs, ours = outputs(imported, x, found)
    assert np.array_equal(ours, theirs)
    assert len(np.unique(theirs)) > 6


@pytest.mark.parametrize("name", ["qdq_dense", "qdq_dense_channels", "qdq_image", "qdq_image_channels"])
def test_other_scales_keep_their_integers_and_differ_by_few_codes(tmp_path, name):
    path = tmp_path / "network.onnx"
    ENTRIES[name][0](path)
    imported = read(path)
    made = kept(imported.network, "trainer")
    found = difference(made, model_of(made, "kept", None, ""), None, imported)
    assert found.by == "onnxruntime"
    assert found.largest <= 4
    assert 0 < found.wrong < 0.25 * found.codes
    assert found.outputs < 0.03 * found.range


def nnp(*words) -> "CliRunner":
    return CliRunner().invoke(app, [str(word) for word in words], terminal_width=200)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, dense())
    random = np.random.default_rng(0)
    np.savez("data.npz", x=random.normal(size=(40, 12)).astype(np.float32), y=random.integers(0, 3, 40))
    return tmp_path


def test_the_command_needs_no_data_and_no_pytorch(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    result = nnp("quantize", "network.onnx", "--for", "trainer", "-o", "m.safetensors")
    assert result.exit_code == 0, result.output
    assert "integers and scales are kept (--anew chooses new ones)" in result.output
    assert "golden gives the bits of the file for every input: on 64 random inputs, 0 of 1,408" in result.output
    assert "outputs differ from those of onnxruntime by at most 0," in result.output
    assert load_model(folder / "m.safetensors").provenance.fp32_accuracy is None
    file.save(read(folder / "network.onnx").network, folder / "network.safetensors")
    result = nnp("quantize", "network.safetensors", "--for", "trainer", "--data", "data.npz", "-o", "n.safetensors")
    assert result.exit_code == 0, result.output
    made = load_model(folder / "n.safetensors").provenance
    assert made.fp32_accuracy == made.golden_accuracy


def test_anew_chooses_others(folder):
    result = nnp("quantize", "network.onnx", "--for", "speech", "--data", "data.npz", "--anew", "-o", "m.safetensors")
    assert result.exit_code == 0, result.output
    assert "integers and ranges are found anew" in result.output


@pytest.mark.parametrize(("words", "message"), [
    (("--for", "speech"), "network: speech cannot compute 1 node as the file says\n  n0_QuantizeLinear: its integers"),
    (("--for", "trainer", "--gate-bits", 4), "leave out the options that choose others, or add --anew"),
    (("--for", "trainer", "--anew"), "give data to calibrate with"),
    (("--for", "trainer", "--data", "wrong.npz"), "a sample is 7 numbers, but network takes 12 numbers")])
def test_errors(folder, words, message):
    np.savez("wrong.npz", x=np.zeros((9, 7), np.float32), y=np.arange(9) % 3)
    before = set(folder.iterdir())
    result = nnp("quantize", "network.onnx", *words)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert set(folder.iterdir()) == before


def test_verify_and_the_python_api_take_this_path(folder):
    import concord

    result = nnp("verify", "network.onnx", "--data", "data.npz", "--machine", "golden", "--samples", 2)
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "quantised already and keeps its integers" in text
    assert "the bits of the file: on " in text
    model = concord.quantize("network.onnx", preset="trainer")
    assert model.quantized.provenance.method.endswith("the integers and scales of its file, with the same bits")
    with pytest.raises(ValueError, match="--anew"):
        concord.quantize("network.onnx", preset="trainer", rows=0)
