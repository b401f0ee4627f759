"""Channels equalised before quantisation: the same function, groups of tensors, and what it gains."""

from dataclasses import replace

import numpy as np
import pytest
from concord.datasets.samples import DataSet, Samples, Task
from concord.lib.progress import silent
from concord.net.graph import Graph
from concord.net.ops.joins import Addition
from concord.net.ops.pointwise import Relu, Sigmoid
from concord.net.ops.reshape import Flatten
from concord.net.passes.clips import with_clips
from concord.net.passes.equalize import equalized, groups
from concord.net.passes.fold import fold_scales
from concord.net.quantize import node_results, run
from concord.net.quantize import quantized as ptq
from concord.net.quantize.choices import Choices
from concord.net.quantize.equalizing import equalize
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.tensors import decibels
from concord.net.quantize.widths import NetworkArithmetic
from concord.nnp.lib.field_options import UNTRAINED
from concord.spec.machine.config import PRESETS
from concord.tests import float_networks
from concord.tests.compiled import agree_on_random
from concord.tests.float_networks import Chain

EIGHT = QuantizationOptions(preset="vision", equalize=True).choices()


def depthwise(uneven: float = 1.0) -> Graph:
    """An inverted bottleneck with a way around it, and channels that differ by up to `uneven` either way."""
    chain = Chain((3, 8, 8)).conv("a", 8, 3, padding=(1, 1, 1, 1)).add(Relu(), "ra")
    chain.conv("wide", 16, 8, (1, 1)).add(Relu(), "rw").conv("each", 16, 16, padding=(1, 1, 1, 1), groups=16)
    chain.add(Relu(), "re").conv("narrow", 8, 16, (1, 1)).add(Addition(), "sum", ("narrow", "ra")).max_pool("m")
    network = chain.add(Flatten(), "f").dense("d", 5, 128).network("depthwise")
    rng = np.random.default_rng(1)
    for group in groups(network):
        factors = np.exp(rng.uniform(-1, 1, group.channels) * np.log(uneven))
        makers = {name: network.node(name) for name in group.makers}
        network = network.rewritten({name: replace(node, op=node.op.scaled(factors, np.zeros(1)))
                                     for name, node in makers.items()})
        readers = {name: network.node(name) for name in group.readers}
        network = network.rewritten({name: replace(node, op=node.op.of_scaled(1 / factors, np.zeros(1)))
                                     for name, node in readers.items()})
    return network


def samples(network: Graph, count: int = 48) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, *network.shape)).astype(np.float32)


def quality(network: Graph, wanted: np.ndarray, x: np.ndarray) -> float:
    made = ptq.quantized(ptq.prepared(network, EIGHT, scales_apart=True), x)
    return decibels(wanted, node_results.outputs(made.graph, x))


@pytest.mark.parametrize("share", [0, 0.5, 1])
@pytest.mark.parametrize("make", [
    float_networks.images, float_networks.residual, float_networks.line, float_networks.before_layers,
    float_networks.perceptron, depthwise])
def test_the_network_computes_the_same(make, share):
    network = make()
    bare = fold_scales(with_clips(network), batch_norm=True)
    ranges = {name: np.random.default_rng(2).uniform(0.01, 3, shape[0]) for name, shape in bare.shapes.items()}
    made, x = equalized(bare, ranges, share), samples(network, 4)
    if groups(bare) and share:
        assert any((made.node(node.name).op.weight != node.op.weight).any() for node in bare.nodes
                   if hasattr(node.op, "weight"))
    want = bare.run(x)
    np.testing.assert_allclose(made.run(x), want, rtol=0, atol=1e-4 * np.abs(want).max())


def test_tensors_of_a_sum_have_the_same_channels():
    found = {group.makers: (group.readers, group.channels) for group in groups(depthwise())}
    assert found == {("a", "narrow"): (("wide", "d"), 8), ("wide",): (("each",), 16), ("each",): (("narrow",), 16)}


def test_a_scale_of_the_input_takes_part():
    network = Chain((3,)).affine("s", [1, 2, 3], [0, 1, 0]).dense("d", 4, 3).add(Relu(), "r").dense("e", 2, 4).network()
    assert [(group.makers, group.readers) for group in groups(network)] == [(("s",), ("d",)), (("d",), ("e",))]


@pytest.mark.parametrize("network", [
    Chain((3,)).dense("d", 4, 3).add(Relu(ceiling=6.0), "r").dense("e", 2, 4).network(),
    Chain((3,)).dense("d", 4, 3).add(Sigmoid(), "r").dense("e", 2, 4).network(),
    Chain((3,)).dense("d", 4, 3).add(Relu(), "r").network(),
    Chain((4,)).dense("d", 4, 4).add(Addition(), "s", ("d", "")).dense("e", 2, 4).network(),
    ], ids=["relu6", "sigmoid", "output", "input"])
def test_other_tensors_keep_their_channels(network):
    assert not groups(network)


def test_of_a_recurrent_network_dense_layers_have_equal_channels():
    assert [(group.makers, group.readers) for group in groups(float_networks.sequences())] == [(("hidden",), ("more",))]


def test_uneven_channels_lose_little_once_they_are_equal():
    network = depthwise(uneven=16)
    x = samples(network)
    wanted = node_results.outputs(network, x)
    found = equalize(network, EIGHT, x)
    before, after = quality(network, wanted, x), quality(found.network, wanted, x)
    assert found.words.startswith("channels equalised, which gains ")
    assert after > before + 6
    assert after > quality(depthwise(), wanted, x) - 3


def test_an_equal_network_stays():
    network = Chain((1, 4, 4)).conv("a", 1, 1, padding=(1, 1, 1, 1)).add(Relu(), "r").conv("b", 2, 1).network()
    found = equalize(network, EIGHT, samples(network))
    assert (found.network, found.words) == (network, "channels not equalised, which gains nothing")
    network = Chain((3,)).dense("d", 4, 3).network()
    found = equalize(network, EIGHT, samples(network, 1))
    assert (found.network, found.words) == (network, "no channels that can be equalised")


def test_the_model_says_it_and_runs_on_the_machine(tmp_path):
    network = depthwise(uneven=16)
    data = DataSet(name="random", task=Task.CLASSIFICATION, shape=network.shape, train=of(network, 48),
                   test=of(network, 8), calibration=None, description="data = \"random\"")
    made = {}
    for choices in (EIGHT, replace(EIGHT, equalize=False)):
        model = run.quantize(tmp_path / "m.safetensors", run.opened(network, data, choices), choices, command="test",
                             progress=silent)
        made[choices.equalize] = model
        assert ("channels equalised, which gains" in model.provenance.method) == choices.equalize
    agree_on_random(PRESETS["vision"], made[True])
    assert not np.array_equal(made[True].layers[1].weights, made[False].layers[1].weights)
    np.testing.assert_array_equal(made[True].fp32_predictions, made[False].fp32_predictions)


def of(network: Graph, count: int) -> Samples:
    x = samples(network, count)
    return Samples(inputs=x.reshape(count, -1).astype(np.float16).view(np.uint16), lengths=None, classes=(),
                   labels=np.arange(count, dtype=np.uint8) % 5)


def test_options_that_cannot_follow_are_refused():
    with pytest.raises(ValueError, match="bfp finds its own exponents: --equalize is for integer"):
        QuantizationOptions(preset="vision", arithmetic=NetworkArithmetic.BFP, equalize=True).choices()
    with pytest.raises(ValueError, match="--equalize is for `nnp quantize` and `nnp verify`, which do not train"):
        QuantizationOptions(preset="vision", equalize=True).check_trains()
    assert QuantizationOptions(preset="vision", equalize=True).beyond_widths
    assert Choices().equalize is False
    assert UNTRAINED == ("equalize", "reconstruct")
