"""Quantised networks of PyTorch on the golden machine: convolutional networks of every style, in every arithmetic."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ROOM
from concord.compiler.network import compile_network
from concord.datasets import dataset
from concord.firmware.session import Session
from concord.net import network
from concord.net.model_file import load_model
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.widths import NetworkArithmetic
from concord.sim.machines.host import machine
from concord.spec.machine.config import preset
from concord.tests.compiled import agree_on_random as agree

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")

from concord.net.quantize.recipe import Recipe
from concord.tests.train.test_image_networks import IN_BLOCKS, NETWORKS, OF_IMAGES, made
from concord.train.lib import data
from concord.train.lib.networks import NETWORKS as OF_28
from concord.train.network.quantized_network import behind_quantizers
from concord.train.runs.image import train_image

pytestmark = OF_IMAGES


def recipe(name: str, block: bool):
    """Quantise for a preset."""
    widths = QuantizationOptions(preset=name).widths()
    if block:
        return QuantizationOptions(preset=name, arithmetic=NetworkArithmetic.BFP).recipe()
    return Recipe(weights_bits=widths.weights, input_bits=widths.inputs, symmetric=(True, widths.symmetric))


def assert_compiled(name: str, net, x, block: bool, apart: bool = False, **changes):
    """Quantise a network for a preset, and compare it on the golden machine of that preset with larger memories.

    If `apart`, each quantiser has a range of its own, as after training, so layers share no codes of a tensor.
    """
    quantized = behind_quantizers(net, x, recipe(name, block))
    if apart:
        with torch.no_grad():
            for layer in quantized.layers.values():
                for value in layer.inputs.parameters() if layer.inputs else ():
                    value.mul_(0.9 + 0.2 * torch.rand(value.shape))
    layers, sources = quantized.lower()
    return agree(replace(preset(name), **changes), networks.model(layers, sources=sources))


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("where", ["vision", "ulx3s"])
@pytest.mark.parametrize("name", NETWORKS)
def test_small_networks(name, where, block):
    net, x = made(name, IN_BLOCKS if block else NETWORKS)
    assert_compiled(where, net, x, block, **ROOM)


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", ["resnet", "mobilenet", "inception"])
def test_networks_of_28_pixels(name, block):
    net, x = OF_28[name](), torch.rand(12, 1, 28, 28).half().float()
    net.train()(x * 2)
    compiled = assert_compiled("vision_large", net.eval(), x, block, addsub_vrf=8192, instructions=2048)
    assert compiled.usage["VectorRf"][0] <= preset("vision_large").vector_rf


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("where", ["vision", "ulx3s"])
@pytest.mark.parametrize("name", ["resnet-small", "mobilenet-small", "inception-small"])
def test_small_networks_of_28_pixels_fit(name, where, block):
    net, x = OF_28[name](), torch.rand(12, 1, 28, 28).half().float()
    net.train()(x * 2)
    assert_compiled(where, net.eval(), x, block, apart=True)


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("where", ["vision", "ulx3s"])
@pytest.mark.parametrize("style", ["resnet", "mobilenet", "inception"])
def test_trained_networks(style, where, block, tmp_path, monkeypatch):
    """From images to the machine: what it answers to real images is what training recorded."""
    few = dataset.load("fashion-mnist").first(20)
    monkeypatch.setattr(data, "fashion_mnist", lambda folder: few)
    monkeypatch.setattr(dataset, "load", lambda name: few)
    path = tmp_path / "model.safetensors"
    train_image(path, network=f"concord.campaigns.verify_matrix:{style}", recipe=recipe(where, block),
                epochs=(1, 1, 1), samples=20)
    model = load_model(path)
    session = Session(machine("golden", preset(where)), compile_network(model, preset(where)).firmware)
    outputs = np.stack([session.infer(sample) for sample in few.inputs])
    assert np.array_equal(outputs, network.forward(model, few.inputs)[-1].outputs)
    right = network.classes(outputs) == few.labels
    assert right.mean() == model.provenance.golden_accuracy
