"""Products of two computed tensors, leaky relus, and functions that others read without them: golden and twins."""

import re
from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import image_networks, networks
from concord.campaigns.twin_random import results
from concord.compiler.lib.limits import CannotRun
from concord.compiler.network import compile_network
from concord.net.graph import Graph
from concord.net.layers.curves import Curve
from concord.net.layers.joins import Multiply
from concord.net.model_file import load_model, save_model
from concord.net.ops.joins import Multiplication
from concord.net.ops.pointwise import Relu, Tanh
from concord.net.ops.reshape import Flatten
from concord.net.quantize.choices import BlockRecipe, Choices
from concord.net.quantize.recipe import Recipe
from concord.spec.machine.config import PRESETS, Config
from concord.tests import float_networks
from concord.tests.compiled import agree_on_random
from concord.tests.float_networks import Chain
from concord.tests.net.quantize.test_quantized import quantized
from concord.tests.twin import recovered
from concord.twin.generic.generic import network


def input_first() -> Graph:
    """A function of the flattened input, which a product reads beside it."""
    chain = Chain((2, 4, 4)).add(Flatten(), "f").add(Tanh(), "t").dense("d", 6, 32).add(Relu(), "r").add(Tanh(), "u")
    return chain.dense("e", 6, 32, sources=("t",)).add(Multiplication(), "m", ("u", "e")).network()


NETWORKS = {make.__name__: make for make in (
    float_networks.gated_images, float_networks.excited, float_networks.enlarged, float_networks.gated_vectors,
    float_networks.leaky, float_networks.gelus, float_networks.more_functions, float_networks.reductions,
    float_networks.offsets, float_networks.pixel_reductions, input_first)}


REDUCTIONS = {"reductions", "pixel_reductions"}


def machine(name: str) -> Config:
    return replace(PRESETS[name], more_functions=True, **image_networks.ROOM)


def model_of(name: str, config: Config, *, block: bool):
    """A network after quantisation for a machine."""
    choices = Choices(recipe=BlockRecipe(weights_bits=8, input_bits=8, block=config.native_dim) if block else Recipe(
        weights_bits=8, input_bits=8, symmetric=(config.weights.symmetric, config.activations.symmetric)))
    network = NETWORKS[name]()
    made, _ = quantized(network, choices)
    return networks.model(made.layers, sources=made.sources)


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", sorted(NETWORKS.keys() - REDUCTIONS))
def test_golden_and_twin_give_the_bits_of_the_layers(name, block):
    config = machine("vision")
    model = model_of(name, config, block=block)
    agree_on_random(config, model, samples=3)
    samples = networks.inputs(np.random.default_rng(5), 3, model.inputs)
    recovered.agree(config, model, samples)


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("name", sorted(REDUCTIONS))
def test_reductions_of_vectors(name, block):
    """Golden gives the bits of the layers, and so do twins of layers and twins word by word."""
    config = machine("vision")
    model = model_of(name, config, block=block)
    compilation = agree_on_random(config, model, samples=3)
    samples, firmware = networks.inputs(np.random.default_rng(5), 3, model.inputs), compilation.firmware
    recovered.agree(config, model, samples)
    np.testing.assert_array_equal(results(network(firmware), samples), recovered.golden(firmware, samples))
    assert "v_largest0" in compilation.firmware.text


def test_a_machine_without_reductions_is_named():
    with pytest.raises(CannotRun, match="layer 'layer' .*: it needs the largest element or the sum of a vector"):
        compile_network(model_of("reductions", PRESETS["vision"], block=False), PRESETS["vision"])


def test_a_machine_without_the_functions_is_named():
    model = model_of("more_functions", PRESETS["vision"], block=False)
    with pytest.raises(CannotRun, match="layer 'a' .*: its activation function is exp, and the machine's more_functions"
                                        " is false: set more_functions = true in a machine of your own") as refused:
        compile_network(model, PRESETS["vision"])
    assert {reason.attribute for reason in refused.value.reasons} == {"more_functions"}
    config = replace(PRESETS["vision"], more_functions=True)
    assert "v_rsqrt" in compile_network(model, config).firmware.text


def test_existing_presets_multiply_tensors():
    found = {}
    for name, preset in (("gated_vectors", "speech"), ("gated_images", "vision")):
        found[name] = compile_network(model_of(name, PRESETS[preset], block=False), PRESETS[preset]).firmware.text
    assert re.search(r"v_rd MultiplyVrf0, \d+\nv_sigm0\nvv_mul0 \d+", found["gated_vectors"])
    assert re.search(r"v_rd_inc InitialVrf, \d+\nvv_mul0_inc \d+\nv_relu1\n", found["gated_images"])


def test_the_file_keeps_the_layers(tmp_path):
    model = model_of("gated_vectors", PRESETS["vision"], block=False)
    save_model(model, tmp_path / "m.safetensors")
    kept = {layer.name: layer for layer in load_model(tmp_path / "m.safetensors").layers}
    assert isinstance(kept["gated"], Multiply)
    assert isinstance(kept["s"], Curve)
    assert kept["s"].activation == "sigmoid"
