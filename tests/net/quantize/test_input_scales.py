"""Scales of a network's input ahead of the first quantiser: in R and O, not in the weights."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.net import float_network
from concord.net import network as golden
from concord.net.arithmetic.line import Line
from concord.net.graph import Graph
from concord.net.layers.convolution import Conv
from concord.net.layers.dense import Dense
from concord.net.model import Model
from concord.net.model_file import load_model, save_model
from concord.net.ops.grid import IntegerGrid
from concord.net.ops.joins import Concatenation
from concord.net.ops.pointwise import Relu
from concord.net.ops.reshape import Flatten
from concord.net.ops.weighted import Linear
from concord.net.passes.simplify import without_quantizers
from concord.net.qdq.network import keep
from concord.net.quantize import quantized as ptq
from concord.net.quantize.choices import Choices
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.plan import plan
from concord.net.quantize.widths import NetworkArithmetic
from concord.sim.machines.host import machine
from concord.spec.machine.config import PRESETS
from concord.tests.compiled import agree, agree_on_random, machines_agree
from concord.tests.float_networks import Chain
from concord.tests.real_networks import compiler_error
from concord.tests.twin import recovered

EIGHT = QuantizationOptions(preset="vision").choices()


def quantized(network: Graph, x: np.ndarray, choices: Choices = EIGHT) -> Model:
    made = ptq.quantized(ptq.prepared(network, choices, scales_apart=True), x)
    return networks.model(made.layers, sources=made.sources)


def patterns(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16).view(np.uint16).reshape(len(x), -1)


def outputs(model: Model, x: np.ndarray) -> np.ndarray:
    return golden.outputs(model, patterns(x)).view(np.float16).astype(np.float64)


def standardised_digits() -> tuple[Graph, np.ndarray, np.ndarray, np.ndarray]:
    """A perceptron behind a standardisation, training samples, test samples and their classes.

    Some pixels of these digits are nearly always 0: the standardisation multiplies them by up to 37.
    """
    pytest.importorskip("sklearn")
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier
    from sklearn.preprocessing import StandardScaler

    x, labels = load_digits(return_X_y=True)
    train, test, known, wanted = train_test_split(
        x.astype(np.float32), labels, test_size=0.25, random_state=0, stratify=labels)
    scaler = StandardScaler().fit(train)
    made = MLPClassifier((32,), max_iter=300, random_state=0).fit(scaler.transform(train), known)
    chain = Chain((64,)).affine("scaler", 1 / scaler.scale_, -scaler.mean_ / scaler.scale_)
    for name, weight, bias in zip(("hidden", "classes"), made.coefs_, made.intercepts_, strict=True):
        chain.add(Linear(weight=np.float32(weight.T), bias=np.float32(bias)), name)
        if name == "hidden":
            chain.add(Relu(), "relu")
    return chain.network("digits"), train, test, wanted


def test_8_bits_stay_within_half_a_point_behind_a_standardisation_with_nearly_constant_inputs():
    network, train, test, wanted = standardised_digits()
    assert 1 / network.nodes[0].op.scale.max() < 0.03
    real = np.mean(network.run(test).argmax(1) == wanted)
    ours = np.mean(outputs(quantized(network, train[:256]), test).argmax(1) == wanted)
    assert real > 0.95
    assert ours > real - 0.005


def spread(rng: np.random.Generator, network: Graph, samples: int = 24) -> np.ndarray:
    """Inputs of a network that begins with a scale, for which it gives numbers of about 1."""
    scale, offset = (part.reshape(-1, *[1] * (len(network.shape) - 1)) for part in network.nodes[0].op.line())
    return ((rng.normal(size=(samples, *network.shape)) - offset) / scale).astype(np.float32)


def vector() -> Graph:
    """A perceptron of inputs whose units differ by far."""
    chain = Chain((6,)).affine("units", [200, 0.01, 1, -3, 0.5, 30], [0, -3, 1, 0.2, 0, -1])
    return chain.dense("one", 9, 6).add(Relu(), "r").dense("two", 4, 9).network("vector")


def channels() -> Graph:
    """An image, whose channels are scaled, and convolved and flattened without padding."""
    chain = Chain((3, 6, 5)).affine("colours", [50, 1, 0.1], [-10, 0.5, 0])
    chain.conv("a", 6, 3).add(Relu(), "ra").add(Flatten(), "f").dense("d", 4, 72)
    return chain.network("channels")


def padded() -> Graph:
    """A normalised image of one channel, with padding."""
    chain = Chain((1, 6, 6)).affine("norm", [3.2], [-0.42]).conv("a", 4, 1, padding=(1, 1, 1, 1))
    return chain.add(Relu(), "ra").add(Flatten(), "f").dense("d", 3, 144).network("padded")


def padded_channels() -> Graph:
    """An image whose channels have other units and the same zero, with padding and groups."""
    chain = Chain((4, 5, 5)).affine("units", [40, 1, 0.1, 2], [0, 0, 0, 0])
    chain.conv("a", 4, 4, groups=2, padding=(1, 0, 1, 1)).add(Relu(), "ra").max_pool("m")
    return chain.add(Flatten(), "f").dense("d", 3, 16).network("padded_channels")


def flattened() -> Graph:
    """An image that is flattened, and standardised pixel by pixel."""
    chain = Chain((1, 3, 4)).add(Flatten(), "f").affine("pixels", np.linspace(0.5, 40, 12), np.linspace(-2, 1, 12))
    return chain.dense("one", 9, 12).add(Relu(), "r").dense("two", 4, 9).network("flattened")


def scaled_flattened() -> Graph:
    """A scaled image, then flattened: neighbouring inputs of the layer share numbers."""
    chain = Chain((2, 3, 2)).affine("c", [8, 0.2], [1, -1]).add(Flatten(), "f").dense("one", 9, 12).add(Relu(), "r")
    return chain.dense("two", 4, 9).network("scaled_flattened")


NETWORKS = {make.__name__: make for make in (vector, channels, padded, padded_channels, flattened, scaled_flattened)}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_scale_of_the_input_stays_ahead_of_the_quantiser(name):
    network = NETWORKS[name]()
    x = spread(np.random.default_rng(0), network) if name != "flattened" else np.random.default_rng(0).normal(
        size=(24, 1, 3, 4)).astype(np.float32)
    model = quantized(network, x)
    real = network.run(x).reshape(len(x), -1)
    assert np.abs(outputs(model, x) - real).max() < 0.05 * np.ptp(real)
    assert [layer.name for layer in model.layers if isinstance(layer, Dense | Conv)] == [
        node.name for node in network.nodes if node.op.kind in ("dense", "conv")]
    first = model.layers[0]
    assert first.quant_scale.shape == (first.channels_in,)
    assert "line" in first.real
    beside = float_network.float_network(model)
    assert beside.nodes[0].op.kind == "affine" or beside.nodes[1].op.kind == "affine"
    again = beside.run(x.reshape(len(x), *beside.shape)).reshape(len(x), -1)
    np.testing.assert_allclose(again, real, rtol=0, atol=1e-5 * np.ptp(real))


@pytest.mark.parametrize("name", NETWORKS)
def test_the_machine_and_its_twin_give_these_bits(name):
    network = NETWORKS[name]()
    x = np.random.default_rng(1).normal(size=(24, *network.shape)).astype(np.float32)
    model = quantized(network, x)
    agree(PRESETS["vision"], model, patterns(x[:3]))
    recovered.agree(PRESETS["vision"], model, patterns(x[:3]))
    agree_on_random(PRESETS["vision"], model)
    assert compiler_error(PRESETS["vision"], model, patterns(x[:3])) < 1e-6


def test_the_machine_takes_them_as_hardware():
    config = PRESETS["vision"]
    with machine("golden", config) as one, machine("library", config) as other:
        for name in ("vector", "channels", "padded"):
            network = NETWORKS[name]()
            x = np.random.default_rng(2).normal(size=(24, *network.shape)).astype(np.float32)
            machines_agree(one, other, config, quantized(network, x), patterns(x[:3]))


def test_a_perceptron_of_vector_memories_runs_on_a_machine_without_images():
    network = vector()
    x = spread(np.random.default_rng(3), network)
    model = quantized(network, x, QuantizationOptions(preset="speech").choices())
    assert not PRESETS["speech"].vector_rf
    agree(PRESETS["speech"], model, patterns(x[:3]))
    recovered.agree(PRESETS["speech"], model, patterns(x[:3]))


def test_a_model_file_keeps_the_scale(tmp_path):
    x = spread(np.random.default_rng(4), network := channels())
    made = float_network.separated(quantized(network, x))
    save_model(made, tmp_path / "m.safetensors")
    read = load_model(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(read.layers[0].real["line"], made.layers[0].real["line"])
    np.testing.assert_array_equal(outputs(read, x), outputs(made, x))
    assert compiler_error(PRESETS["vision"], read, patterns(x[:3])) < 1e-6
    kinds = [node.op.kind for node in read.graph.nodes]
    assert kinds[:2] == ["affine", "conv"]


@pytest.mark.parametrize(("offset", "scale"), [(-5000, 1), (-3, 30_000), (20_000, -0.5)])
def test_numbers_beyond_binary16_move_into_the_weights_of_that_input(offset, scale):
    network = Chain((3,)).affine("s", [1, 2, scale], [0, 1, offset]).dense("d", 4, 3).network()
    rng = np.random.default_rng(5)
    x = np.float32(np.stack([rng.normal(size=64), rng.normal(size=64), np.full(64, -offset / scale)], 1))
    model = quantized(network, x)
    real = network.run(patterns(x).view(np.float16).astype(np.float64))
    assert np.abs(outputs(model, x) - real).max() < 0.06 * np.ptp(real)
    assert compiler_error(PRESETS["vision"], model, patterns(x[:3])) < 1e-4  # float32 holds the offsets


def test_years_keep_their_codes():
    """Numbers far from 0, whose products with R round, beside others."""
    network = Chain((3,)).affine("s", [1, 0.5, 1], [0, -1007, -300]).dense("d", 4, 3).network()
    rng = np.random.default_rng(5)
    x = np.float32(np.stack([rng.normal(size=200), rng.integers(2010, 2018, 200), rng.integers(298, 303, 200)], 1))
    real = network.run(x)
    errors = {}
    for apart in (True, False):
        found = ptq.quantized(ptq.prepared(network, EIGHT, scales_apart=apart), x)
        errors[apart] = np.abs(outputs(networks.model(found.layers, sources=found.sources), x) - real).max()
    assert errors[True] < 0.02 * np.ptp(real) < errors[False] / 5


def pixelwise() -> Graph:
    """An image that is scaled pixel by pixel where a convolution reads it, too."""
    chain = Chain((1, 3, 4)).add(Flatten(), "f").affine("pixels", np.linspace(0.5, 40, 12), np.zeros(12))
    chain.dense("one", 6, 12).conv("c", 2, 1, (1, 1), sources=("",)).add(Flatten(), "g")
    return chain.add(Concatenation(), "both", ("one", "g")).dense("two", 4, 30).network("pixelwise")


@pytest.mark.parametrize("network", [
    Chain((3,)).affine("s", [2], [1]).dense("d", 4, 3).network("one_number"),
    Chain((3,)).affine("s", [2, 0, 1], [1, 1, 1]).dense("d", 4, 3).network("zero"),
    Chain((2, 4, 4)).affine("s", [2, 3], [1, 1]).conv("c", 2, 2, padding=(1, 1, 1, 1)).network("two_paddings"),
    Chain((2, 4, 4)).affine("s", [2, 3], [1, 1]).max_pool("m").conv("c", 2, 2, (1, 1)).network("maximum"),
    pixelwise()], ids=lambda network: network.name)
def test_other_scales_become_part_of_layers(network):
    x = np.random.default_rng(6).normal(size=(24, *network.shape)).astype(np.float32)
    model = quantized(network, x)
    assert not any("line" in getattr(layer, "real", {}) for layer in model.layers)
    agree_on_random(PRESETS["vision"], model)


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_a_plan_for_training_and_for_blocks_folds_all_scales(make):
    network = make()
    assert all(part.line is None for part in plan(network).parts)
    assert any(part.line is not None for part in plan(network, scales_apart=True).parts)
    blocks = QuantizationOptions(preset="vision", arithmetic=NetworkArithmetic.BFP).choices()
    x = np.random.default_rng(7).normal(size=(4, *network.shape)).astype(np.float32)
    assert not any("line" in getattr(layer, "real", {}) for layer in quantized(network, x, blocks).layers)


def test_the_scale_of_a_network_that_is_quantised_already_is_part_of_its_float_network():
    chain = Chain((2,)).affine("s", [2, 0.25], [1, -1]).quantizer("q", scale=2.0**-5, narrow=True)
    weight = np.float32([[1, -2], [3, 1]]) / 8
    grid = IntegerGrid.of_outputs(np.full(2, 1 / 8), np.zeros(2), weight, bits=8, signed=True)
    network = chain.add(Linear(weight=weight, bias=np.float32([0, 1]), grid=grid), "d").network()
    vision = PRESETS["vision"]
    kept = keep(network, vision.weights, vision.activations)
    model = networks.model(kept.layers, sources=kept.sources)
    x = np.random.default_rng(8).uniform(-1, 1, (5, 2))
    bare = without_quantizers(network)
    np.testing.assert_allclose(float_network.forward(model, patterns(x))[-1],
                               bare.run(patterns(x).view(np.float16).astype(np.float64)), rtol=1e-6)
    assert compiler_error(vision, model, patterns(x)) < 1e-6


@pytest.mark.parametrize("line", [np.ones((2, 5)), np.zeros((2, 6)), np.ones(6)])
def test_a_file_with_other_scales_is_refused(line):
    first = quantized(network := vector(), spread(np.random.default_rng(9), network)).layers[0]
    with pytest.raises(ValueError, match="real.line: a scale that is not 0 and an offset for each of the 6 channels"):
        replace(first, real={**first.real, "line": line})


def test_lines_follow_each_other():
    one, other = Line(scale=np.array([2.0, 4]), offset=np.array([1.0, 0])), Line(
        scale=np.array([3.0, -1]), offset=np.array([0.0, 5]))
    x = np.random.default_rng(0).normal(size=(3, 2, 4))
    np.testing.assert_allclose(one.then(other).applied(x), other.applied(one.applied(x)))
    np.testing.assert_allclose(one.inverse.applied(one.applied(x)), x)
    np.testing.assert_array_equal(one.zero, [-0.5, 0])
    assert not one.same
    assert Line.neutral(3).same
