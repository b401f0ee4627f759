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
from concord.frontends.onnx.compare import outputs
from concord.frontends.onnx.read import read
from concord.tests.frontends.zoo_quantized import ENTRIES
from concord.tests.onnx_files import Graph, written

SAMPLES, ZERO = 64, np.int8(0)


class Quantized(Graph):
    """A graph of integers whose scales are powers of two."""

    def qdq(self, scale: float, zero=ZERO) -> str:
        scale, zero = self.constant(np.float32(scale)), self.constant(zero)
        self.add("QuantizeLinear", scale, zero)
        return self.add("DequantizeLinear", scale, zero)

    def quant(self, scale: float, bits: int, signed: bool, first: str | None = None) -> str:
        """QONNX's Quant."""
        constants = [self.constant(np.float32(value)) for value in (scale, 0, bits)]
        return self.add("Quant", *constants, first=first, domain="qonnx.custom_op.general", signed=int(signed),
                        narrow=0, rounding_mode="ROUND")

    def integers(self, scale, *shape: int, largest: int = 3) -> str:
        """Weights: integers, and one scale or one for each output."""
        at, scale = self.at, np.float32(scale)
        values = self.random.integers(-largest, largest + 1, shape).astype(np.int8)
        name = self.add("DequantizeLinear", self.constant(scale), self.constant(np.zeros(scale.shape, np.int8)),
                        first=self.constant(values), **({"axis": 0} if scale.ndim else {}))
        self.at = at
        return name

    def bias(self, size: int, step: float) -> str:
        return self.constant((self.random.integers(-9, 10, size) * step).astype(np.float32))


def dense(end: bool = False) -> onnx.ModelProto:
    graph = Quantized(("batch", 12))
    graph.qdq(2.0**-2)
    graph.add("Gemm", graph.integers(2.0**-2, 10, 12, largest=1), graph.bias(10, 2.0**-4), transB=1)
    graph.add("Relu")
    graph.qdq(2.0**-2)
    graph.add("Gemm", graph.integers([2.0**-3, 2.0**-2, 2.0**-1], 3, 10, largest=1), graph.bias(3, 2.0**-3), transB=1)
    if end:
        graph.qdq(0.5)
    return graph.model(21)


def images(zero=ZERO) -> onnx.ModelProto:
    """Convolutions, maxima, a sum, an average, and a quantised output."""
    graph = Quantized((1, 2, 8, 8))
    graph.qdq(2.0**-1)
    graph.add("Conv", graph.integers(np.full(4, 0.5), 4, 2, 3, 3, largest=1), graph.bias(4, 0.25), pads=[1, 1, 1, 1])
    graph.add("Relu")
    graph.qdq(0.5, zero)
    graph.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    first = graph.qdq(0.5, zero)
    graph.add("Conv", graph.integers(0.5, 4, 1, 3, 3, largest=2), graph.bias(4, 0.25), pads=[1, 1, 1, 1], group=4)
    graph.qdq(0.5, zero)
    graph.add("Add", first)
    graph.qdq(1.0, np.uint8(0))
    graph.add("GlobalAveragePool")
    graph.qdq(0.5)
    graph.add("Flatten")
    graph.add("Gemm", graph.integers(0.25, 5, 4, largest=1), graph.bias(5, 0.125), transB=1)
    graph.qdq(0.25)
    return graph.model(21)


def clipped() -> onnx.ModelProto:
    """Integers of fewer bits than their type, as Brevitas writes them."""
    graph = Quantized(("batch", 12))
    for first, size, (lowest, highest), zero in ((12, 10, (-128, 127), ZERO), (10, 3, (0, 15), np.uint8(0))):
        scale, zero, *limits = map(graph.constant, (np.float32(0.5), zero, type(zero)(lowest), type(zero)(highest)))
        graph.add("QuantizeLinear", scale, zero)
        graph.add("Clip", *limits)
        graph.add("DequantizeLinear", scale, zero)
        graph.add("Gemm", graph.integers(0.25, size, first, largest=1), graph.bias(size, 0.125), transB=1)
        graph.add("Relu")
    return graph.model(21)


def qonnx(image: bool) -> onnx.ModelProto:
    """Inputs of 8 bits, activations of 4, weights of 2."""
    from concord.compiler.qonnx.nodes import quant_function

    graph = Quantized((1, 2, 6, 6) if image else ("batch", 12))
    at = graph.quant(0.25, 8, True)
    for rows, columns in ((6, 2), (4, 6)) if image else ((10, 12), (3, 10)):
        weight = graph.quant(0.5, 2, True, graph.weight(rows, columns, *((3, 3) if image else ())))
        if image:
            graph.add("Conv", weight, graph.bias(rows, 0.125), first=at)
        else:
            weight = graph.add("Transpose", first=weight, perm=[1, 0])
            graph.add("MatMul", weight, first=at)
            graph.add("Add", graph.bias(rows, 0.125))
        graph.add("Relu")
        at = graph.quant(0.5, 4, False)
    model = graph.model(21)
    shape = (1, 4, 2, 2) if image else ("batch", 3)
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info(graph.at, onnx.TensorProto.FLOAT, shape))
    model.functions.append(quant_function(21))
    return model


def maxima_of_integers() -> onnx.ModelProto:
    """A product and a sum read maxima of integers, and integers behind which maxima stand."""
    graph = Quantized((1, 2, 8, 8))
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
