"""Imported networks: their chains without quantisers agree with onnxruntime."""

import warnings

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch", reason="networks are quantised with PyTorch")

import concord
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
    imported = read(path)
    network, times = imported.network, [imported.time] * imported.network.sequence
    samples = np.random.default_rng(0).uniform(-1, 1, (16, *times, *network.shape)).astype(np.float16)
    np.save(tmp_path / "calibration.npy", samples.astype(np.float32))
    model = concord.quantize(path, calibration=tmp_path / "calibration.npy", preset="vision", arithmetic=arithmetic)
    program = concord.compile(model, preset="vision", full_precision=True)
    count = max(2, imported.samples)
    found = concord.run(program, samples[:count].reshape(count, *times, -1), unquantized=True)
    theirs, ours = outputs(imported, samples[:count].astype(np.float64), found.numbers)
    assert np.abs(ours - theirs).max() < CLOSE * np.abs(theirs).max()
    quantized = concord.run(program, samples[:count].reshape(count, *times, -1)).numbers
    assert np.abs(quantized - found.numbers).max() > CLOSE * np.abs(theirs).max()
