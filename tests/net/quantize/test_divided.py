"""Parts of a layer's input with saturations and offsets of their own."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.net import float_network
from concord.net import network as golden
from concord.net.graph import Graph
from concord.net.model import Model
from concord.net.model_file import load_model, save_model
from concord.net.ops.pointwise import Relu
from concord.net.ops.pooling import GlobalAverage
from concord.net.ops.reshape import Flatten
from concord.net.quantize import quantized as ptq
from concord.net.quantize.divided import divided
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.recipe import ActivationMethod, Methods, Recipe
from concord.net.quantize.tensors import decibels
from concord.net.quantize.widths import NetworkArithmetic
from concord.spec.machine.config import PRESETS
from concord.tests.compiled import agree
from concord.tests.float_networks import Chain
from concord.tests.real_networks import compiler_error
from concord.tests.twin import recovered


def dense() -> Graph:
    """A perceptron whose first hidden units differ by far, and count alike."""
    chain = Chain((6,)).dense("one", 8, 6).dense("two", 8, 8).add(Relu(), "r").dense("three", 4, 8)
    network, far, shift = chain.network("dense"), np.geomspace(1, 50, 8), np.linspace(-9, 9, 8)
    return network.rewritten({
        "one": replace(network.node("one"), op=network.node("one").op.scaled(far, shift)),
        "two": replace(network.node("two"), op=network.node("two").op.of_scaled(1 / far, -shift / far))})


def image() -> Graph:
    """Convolutions with and without padding, groups, and a flattened image."""
    chain = Chain((3, 8, 8)).conv("a", 8, 3, padding=(1, 1, 1, 1)).add(Relu(), "ra")
    chain.conv("b", 8, 8, groups=2, padding=(1, 1, 1, 1)).add(Relu(), "rb").conv("c", 4, 8).max_pool("m")
    return chain.add(Flatten(), "f").dense("d", 3, 36).network("image")


def clipped() -> Graph:
    """A relu6 and an average, whose readers have one range."""
    chain = Chain((4, 6, 6)).conv("a", 4, 4).add(Relu(ceiling=6.0), "six").conv("b", 4, 4, (1, 1))
    return chain.add(GlobalAverage(), "mean").add(Flatten(), "f").dense("d", 3, 4).network("clipped")


NETWORKS = {make.__name__: make for make in (dense, image)}


def samples(network: Graph, count: int = 48) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, *network.shape)).astype(np.float32)


def model_of(network: Graph, x: np.ndarray, **options) -> Model:
    choices = QuantizationOptions(**({"preset": "vision"} | options)).choices()
    made = ptq.quantized(ptq.prepared(network, choices, scales_apart=True), x)
    return networks.model(made.layers, sources=made.sources)


def patterns(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16).view(np.uint16).reshape(len(x), -1)


def outputs(model: Model, x: np.ndarray) -> np.ndarray:
    return golden.outputs(model, patterns(x)).view(np.float16).astype(np.float64)


@pytest.mark.parametrize("reconstruct", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_machine_and_its_twin_give_these_bits(name, reconstruct, tmp_path):
    network = NETWORKS[name]()
    x = samples(network)
    model = float_network.separated(model_of(network, x, input_parts=3, reconstruct=reconstruct))
    for layer in model.layers:
        if "line" in getattr(layer, "real", ()):
            assert 1 < len(np.unique(layer.quant_scale)) <= 3
    assert sum("line" in getattr(layer, "real", ()) for layer in model.layers) == len(
        [node for node in network.nodes if node.op.kind in ("dense", "conv")])
    save_model(model, tmp_path / "m.safetensors")
    model = load_model(tmp_path / "m.safetensors")
    agree(PRESETS["vision"], model, patterns(x[:3]))
    recovered.agree(PRESETS["vision"], model, patterns(x[:3]))
    assert compiler_error(PRESETS["vision"], model, patterns(x[:3])) < 1e-6
    real = network.run(x).reshape(len(x), -1)
    assert np.abs(outputs(model, x) - real).max() < 0.05 * np.ptp(real)
    np.testing.assert_allclose(model.graph.run(x).reshape(len(x), -1), real, rtol=0, atol=1e-5 * np.ptp(real))


def test_layers_behind_a_relu6_and_averages_have_one_range():
    model = model_of(network := clipped(), samples(network), input_parts=2)
    assert [layer.name for layer in model.layers if "line" in layer.real] == ["a", "d"]


@pytest.mark.parametrize(("options", "words"), [
    ({"input_parts": 0}, "in 0 parts: choose 1 or more"),
    ({"input_parts": 2, "stages": "weights:1, saturations:1, offsets:1"}, "leave --input-parts out"),
    ({"input_parts": 2, "arithmetic": NetworkArithmetic.BFP}, "--input-parts.* are for integer")])
def test_choices_that_have_no_parts_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        QuantizationOptions(preset="vision", **options).choices()


def test_ranges_of_their_own_help_channels_that_differ():
    network = dense()
    x = samples(network)
    real = network.run(x)
    one, many = (decibels(real, outputs(model_of(network, x, preset="ulx3s", input_parts=parts), x))
                 for parts in (1, 8))
    assert many > one + 2


def test_each_part_has_the_codes_of_its_own_samples():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(5, 6, (200, 2)), rng.uniform(-40, 8, (200, 3))], 1)
    recipe = Recipe(methods=Methods(parts=2, activations=ActivationMethod.UNIFORM))
    line, codes = divided(x, 5, 4, recipe, padded=False)
    low, high = (line.inverse.applied(np.full((1, 5), code * codes.step + codes.offset)) for code in codes.ends)
    first, second = slice(0, 3), slice(3, 5)  # the first part is the larger one
    for part in (first, second):
        np.testing.assert_allclose(low[0, part], x[:, part].min(), rtol=1e-5)
        np.testing.assert_allclose(high[0, part], x[:, part].max(), rtol=1e-5)
