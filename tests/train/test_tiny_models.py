"""The reference architectures and single convolutions in 8 bits: golden layers equal PyTorch, and codes are in use."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")

from concord.benchmarks import tiny_models, tiny_networks
from concord.benchmarks.tiny_models import MEASURED, MODELS, SINGLES
from concord.net import network
from concord.net.model_file import load_model
from concord.tests.command_line import done
from concord.tests.train import test_tiny_networks
from concord.train.lib import networks


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def products(name: str) -> int:
    """Number of products of weights and inputs of a model's network."""
    return test_tiny_networks.products(tiny_models.fp32(name), tiny_models.shape(name))


@pytest.mark.parametrize("name", MODELS)
def test_models_have_codes_of_8_bits(name, tmp_path):
    """Making a model compares golden layers with PyTorch, bit for bit."""
    model = tiny_models.quantized(name, tmp_path)
    inputs = tiny_models.run_inputs(name, 8)
    assert inputs.shape == (8, model.inputs)
    traces = network.forward(load_model(tmp_path / f"{name}.safetensors"), inputs)
    assert np.array_equal(traces[-1].outputs, network.outputs(model, inputs))
    layers = [(layer, trace) for layer, trace in zip(model.layers, traces, strict=True) if layer.multiplications]
    for layer, trace in layers:
        assert (layer.weights_format.bits, layer.weights_format.symmetric) == (8, True)
        assert len(np.unique(trace.codes)) > 20, layer.name
    assert sum(layer.multiplications for layer, _ in layers) == products(name)
    assert len(np.unique(traces[-1].outputs, axis=0)) == 8


@pytest.mark.parametrize("name", SINGLES)
def test_the_measured_convolution_keeps_its_image(name, tmp_path):
    single, model = SINGLES[name], tiny_models.quantized(name, tmp_path)
    (layer,) = [layer for layer in model.layers if layer.name == MEASURED]
    assert layer.inputs == layer.outputs == single.channels * single.size ** 2
    assert layer.multiplications == single.kernel ** 2 * single.channels ** 2 * single.size ** 2
    assert layer.quant_scale is None  # its input arrives in codes


def test_the_command_makes_the_same_model(tmp_path, monkeypatch):
    name = "autoencoder"
    networks.save(tiny_networks.network(name), tmp_path / "fp32.safetensors")
    inputs = tiny_networks.samples(tiny_models.shape(name), tiny_models.CALIBRATION, tiny_models.SEED)
    np.save(tmp_path / "inputs.npy", inputs.numpy())
    monkeypatch.chdir(tmp_path)
    done("quantize", f"concord.benchmarks.tiny_networks:{name}", "fp32.safetensors", "-o", "made.safetensors",
         "--calibration", "inputs.npy", "--preset", "speech")
    made, wanted = load_model(tmp_path / "made.safetensors"), tiny_models.quantized(name, tmp_path)
    x = tiny_models.run_inputs(name, 3)
    assert np.array_equal(network.outputs(made, x), network.outputs(wanted, x))
