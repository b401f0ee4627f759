"""Imported networks: their chains without quantisers agree with onnxruntime."""

import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch", reason="networks are quantised with PyTorch")

import concord
from concord.campaigns.makers.onnx_graphs import OnnxGraph, written
from concord.campaigns.zoo.zoo import ZOO
from concord.frontends.onnx.compare import outputs
from concord.frontends.onnx.read import read

CLOSE = 1e-5  #: Relative difference that float32 leaves in onnxruntime's outputs.


@pytest.mark.parametrize(("name", "arithmetic"), [
    ("torch_lenet_script", "integer"), ("torch_lenet_script", "bfp"), ("torch_one_dimension_script", "integer"),
    ("torch_lstm_script", "integer"), ("torch_gru_script", "bfp")])
def test_onnxruntime(name, arithmetic, tmp_path):
    path = tmp_path / "network.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # exporters have warnings of their own
        ZOO[name][0](path)
    assert_agrees(path, arithmetic, "vision")


def test_functions_and_products_of_tensors(tmp_path):
    graph = OnnxGraph((1, 3, 8, 8))
    graph.add("Conv", graph.weight(4, 3, 3, 3))
    image = graph.add("LeakyRelu", alpha=0.1)
    graph.add("GlobalAveragePool")
    graph.add("Conv", graph.weight(4, 4, 1, 1), graph.weight(4))
    graph.add("Sigmoid")
    graph.add("Mul", image)
    graph.add("Conv", graph.weight(5, 4, 6, 6))
    graph.add("Flatten")
    flat = graph.add("Gemm", graph.weight(5, 6), graph.weight(6))
    graph.add("Gelu", approximate="tanh")
    graph.add("Tanh")
    graph.add("Exp")
    graph.add("Sqrt")
    graph.add("Mul", flat)
    graph.add("Gemm", graph.weight(6, 3), graph.weight(3))
    (tmp_path / "m.toml").write_text('based_on = "vision"\nmore_functions = true\n')
    assert_agrees(written(tmp_path, graph.model(20)), "integer", str(tmp_path / "m.toml"))


def assert_agrees(path: Path, arithmetic: str, preset: str):
    """Assert that firmware without quantisers gives what onnxruntime gives, and firmware with them something near."""
    imported, tmp_path = read(path), path.parent
    network, times = imported.network, [imported.time] * imported.network.sequence
    samples = np.random.default_rng(0).uniform(-1, 1, (16, *times, *network.shape)).astype(np.float16)
    np.save(tmp_path / "calibration.npy", samples.astype(np.float32))
    model = concord.quantize(path, calibration=tmp_path / "calibration.npy", preset=preset, arithmetic=arithmetic)
    program = concord.compile(model, preset=preset, full_precision=True)
    count = max(2, imported.samples)
    found = concord.run(program, samples[:count].reshape(count, *times, -1), unquantized=True)
    theirs, ours = outputs(imported, samples[:count].astype(np.float64), found.numbers)
    assert np.abs(ours - theirs).max() < CLOSE * np.abs(theirs).max()
    quantized = concord.run(program, samples[:count].reshape(count, *times, -1)).numbers
    assert np.abs(quantized - found.numbers).max() > CLOSE * np.abs(theirs).max()
