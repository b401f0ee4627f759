"""Quantised networks of PyTorch on the golden machine: convolutional networks of every style, in every arithmetic."""

from dataclasses import replace

import pytest
from concord.spec.config import preset
from concord.tests import networks
from concord.tests.compiler.test_image_networks import ROOM, agree

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")

from concord.tests.train.test_image_networks import IN_BLOCKS, NETWORKS, made
from concord.train.lib.block_recipe import BlockRecipe
from concord.train.lib.methods import Recipe
from concord.train.lib.networks import NETWORKS as OF_28
from concord.train.qat.block import BlockNetwork
from concord.train.qat.network import QuantisedNetwork

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(5)


def recipe(config, block: bool):
    """Quantise for a machine."""
    widths = {"weights_bits": config.weights.bits, "input_bits": config.activations.bits}
    if block:
        return BlockRecipe(**widths, block=config.native_dim)
    return Recipe(**widths, symmetric=(config.weights.symmetric, config.activations.symmetric))


def assert_compiled(config, net, x, block: bool):
    layers, sources = (BlockNetwork if block else QuantisedNetwork)(net, x, recipe(config, block)).lower()
    if block:  # the range of exponents is that of the machine
        fmt = next(layer for layer in layers if hasattr(layer, "mantissas"))
        config = replace(config, weights=fmt.weights_format, activations=fmt.input_format, acc_int=24, acc_frac=56)
    return agree(config, networks.model(layers, sources=sources))


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("where", ["vision", "ulx3s"])
@pytest.mark.parametrize("name", NETWORKS)
def test_small_networks(name, where, block):
    net, x = made(name, IN_BLOCKS if block else NETWORKS)
    assert_compiled(replace(preset(where), **ROOM), net, x, block)


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", ["resnet", "mobilenet", "inception"])
def test_networks_of_28_pixels(name, block):
    net, x = OF_28[name](), torch.rand(12, 1, 28, 28).half().float()
    net.train()(x * 2)
    config = replace(preset("vision_large"), addsub_vrf=8192, instructions=2048)
    compiled = assert_compiled(config, net.eval(), x, block)
    assert compiled.usage["VectorRf"][0] <= config.vector_rf
