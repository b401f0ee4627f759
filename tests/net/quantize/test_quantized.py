"""Post-training quantisation of float networks in numpy, against the start of training behind quantisers."""

from dataclasses import fields, replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.datasets.samples import DataSet, Samples, Task
from concord.net import network as golden
from concord.net.cells import gru, lstm, peephole, rnn
from concord.net.cells.registry import CELLS
from concord.net.graph import Graph
from concord.net.layers.convolution import Conv
from concord.net.layers.recurrent import IntegerRecurrent
from concord.net.layers.sequences import ImageToSequence, SequenceToImage
from concord.net.ops.joins import Concatenation
from concord.net.ops.pointwise import HardSigmoid
from concord.net.quantize import node_results
from concord.net.quantize import quantized as ptq
from concord.net.quantize.choices import BlockRecipe, Choices
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.plan import Unsupported, plan
from concord.net.quantize.recipe import (
    ActivationMethod,
    ActivationTraining,
    Gates,
    Methods,
    Recipe,
    Start,
    WeightTraining,
)
from concord.net.quantize.source import numbers_of, source
from concord.net.quantize.widths import NetworkArithmetic
from concord.spec.machine.config import PRESETS
from concord.tests import float_networks
from concord.tests.compiled import agree_on_random
from concord.tests.float_networks import (
    Chain,
    both_directions_as_image,
    convolutions_before_and_after,
    linear_at_each_step,
)

WIDE = Recipe(weights_bits=8, input_bits=8, symmetric=(True, True), methods=Methods(activations=ActivationMethod.ENDS))
BFP = BlockRecipe(weights_bits=6, input_bits=6, block=4)
RECIPES = {
    "8 bits": WIDE, "4 bits": Recipe(methods=Methods(rows=0)), "from FP32": Recipe(start=Start.FP32),
    "odd": Recipe(weights=WeightTraining.LSQ_ODD, activations=ActivationTraining.PACT), "blocks": BFP}
FEED_FORWARD = (float_networks.images, float_networks.residual, float_networks.line, float_networks.before_layers,
                float_networks.perceptron, float_networks.gated_images, float_networks.excited, float_networks.enlarged,
                float_networks.leaky, float_networks.gelus, float_networks.gated_vectors, float_networks.more_functions)
RECURRENT = {
    **{name: (cell, {}) for name, cell in CELLS.items()}, "both": (lstm.LSTM, {"both": True}),
    "both gru": (gru.AFTER, {"both": True}), "mixed": (rnn.RELU, {"second": gru.BEFORE})}


def data_for(network: Graph, count: int = 24, *, ragged: bool = True) -> DataSet:
    """Random samples of a network's shape; sequences have several lengths if `ragged`."""
    rng = np.random.default_rng(1)
    shape = (count, 6, *network.shape) if network.sequence else (count, int(np.prod(network.shape)))
    samples = Samples(
        inputs=rng.uniform(-1, 1, shape).astype(np.float16).view(np.uint16), classes=(),
        lengths=rng.integers(2, 7, count) if network.sequence and ragged else None,
        labels=np.arange(count, dtype=np.uint8) % 3)
    return DataSet(name="random", task=Task.CLASSIFICATION, shape=network.shape, train=samples, test=samples.first(10),
                   calibration=None, description="data = \"random\"")


def quantized(network: Graph, choices: Choices, **options):
    """The network after quantisation, and the samples that it was calibrated with."""
    found = source(network, data_for(network, **options), None)
    made = ptq.quantized(ptq.prepared(network, choices, found.steps), found.numbers(found.calibration),
                         found.calibration.lengths)
    return made, found.calibration


def assert_close(network: Graph, made: ptq.Quantized, samples: Samples, share: float):
    """Assert that golden, and the quantised network in real numbers, are near the float network."""
    x, lengths = numbers_of(samples, network), samples.lengths
    outputs = golden.outputs(networks.model(made.layers, sources=made.sources), samples.inputs, lengths)
    ours, real = outputs.view(np.float16).astype(np.float64), network.run(x, lengths).reshape(len(x), -1)
    assert np.abs(ours - real).max() < share * np.ptp(real)
    assert np.sqrt(np.mean(np.square(ours - node_results.outputs(made.graph, x, lengths)))) < share / 4 * np.ptp(real)


def assert_same(ours, theirs):
    """Assert that two layers hold the same integers; real numbers and binary16 may differ in their last bits."""
    assert type(ours) is type(theirs)
    for field in fields(ours):
        one, other = getattr(ours, field.name), getattr(theirs, field.name)
        if field.name == "real":
            assert one.keys() == other.keys()
            for name in one:
                assert np.allclose(one[name], other[name], rtol=1e-4, atol=1e-5), name
        elif field.name == "float_operator":
            numbers = [{} if op is None else op.tensors() for op in (one, other)]
            assert type(one) is type(other)
            assert numbers[0].keys() == numbers[1].keys()
            for name, values in numbers[0].items():
                assert np.allclose(values, numbers[1][name], rtol=1e-4, atol=1e-5), name
        elif field.name in ("vectors", "initial"):
            assert one.keys() == other.keys()
            assert all(np.array_equal(one[name], other[name]) for name in one)
        elif isinstance(one, np.ndarray):
            # A sum of float32 products has another order in PyTorch, which can move the last bit of a calibrated range.
            apart = np.abs(one.astype(np.int64) - other.astype(np.int64))
            assert one.dtype == other.dtype, f"{ours.name}, {field.name}"
            assert apart.max(initial=0) <= (one.dtype == np.uint16), f"{ours.name}, {field.name}"
        elif field.name != "ranges":
            assert one == other, f"{ours.name}, {field.name}"


def assert_training_starts_there(network: Graph, choices: Choices):
    pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
    from concord.train.network.quantized_network import QuantizedNetwork

    found = source(network, data_for(network))
    arithmetic = ptq.prepared(network, choices, found.steps)
    ptq.calibrate(arithmetic, found.numbers(found.calibration), found.calibration.lengths)
    layers, sources = QuantizedNetwork(arithmetic).lower()
    made, _ = quantized(network, choices)
    assert dict(made.sources) == dict(sources)
    assert len(made.layers) == len(layers)
    for ours, theirs in zip(made.layers, layers, strict=True):
        assert_same(ours, theirs)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("make", FEED_FORWARD, ids=lambda make: make.__name__)
def test_training_of_feed_forward_networks_starts_from_these_integers(make, recipe):
    network, choices = make(), Choices(recipe=RECIPES[recipe])
    network = replace(network, nodes=tuple(replace(
        node, name={"type": "typ"}.get(node.name, node.name),
        sources=tuple({"type": "typ"}.get(name, name) for name in node.sources)) for node in network.nodes))
    assert_training_starts_there(network, choices)


@pytest.mark.parametrize("choices", [
    Choices(recipe=Recipe(weights_bits=8, input_bits=8, symmetric=(True, True))), Choices(recipe=BFP),
    Choices(recipe=Recipe(weights_bits=7, input_bits=8), gates=Gates(asymmetric=True, shared=True))],
    ids=["integers", "blocks", "asymmetric"])
@pytest.mark.parametrize("name", RECURRENT)
def test_training_of_recurrent_networks_starts_from_these_integers(name, choices):
    cell, options = RECURRENT[name]
    if cell is peephole.PEEPHOLE:
        made, samples = quantized(network := float_networks.sequences(cell), choices)
        assert_close(network, made, samples, 0.2)
        return
    assert_training_starts_there(float_networks.sequences(cell, **options), choices)


@pytest.mark.parametrize("make", FEED_FORWARD, ids=lambda make: make.__name__)
def test_8_bits_are_near_the_float_network(make):
    network = make()
    made, samples = quantized(network, Choices(recipe=WIDE))
    assert_close(network, made, samples, 0.05)


@pytest.mark.parametrize("cell", [lstm.LSTM, gru.AFTER, rnn.TANH, peephole.PEEPHOLE], ids=lambda cell: cell.name)
@pytest.mark.parametrize("gates", [Gates(), Gates(outputs=8)], ids=["binary16", "outputs of 8 bits"])
def test_8_bits_of_cells_are_near_the_float_network(cell, gates):
    network = float_networks.sequences(cell)
    made, samples = quantized(network, Choices(recipe=WIDE, gates=gates))
    assert_close(network, made, samples, 0.06)


@pytest.mark.parametrize("recipe", [WIDE, replace(BFP, weights_bits=8, input_bits=8)], ids=["integers", "blocks"])
@pytest.mark.parametrize("make", [convolutions_before_and_after, linear_at_each_step], ids=lambda make: make.__name__)
def test_mixed_networks_are_quantized(make, recipe):
    network = make()
    made, samples = quantized(network, Choices(recipe=recipe), ragged=False)
    assert_close(network, made, samples, 0.1)
    kinds = {type(layer) for layer in made.layers}
    assert kinds & {ImageToSequence, SequenceToImage}


@pytest.mark.parametrize("arithmetic", ["integer", "bfp"])
@pytest.mark.parametrize("make", [convolutions_before_and_after, linear_at_each_step, both_directions_as_image],
                         ids=lambda make: make.__name__)
def test_mixed_networks_run_on_a_machine(make, arithmetic):
    options = QuantizationOptions(preset="vision", arithmetic=NetworkArithmetic(arithmetic))
    made, _ = quantized(make(), options.choices(), ragged=False)
    agree_on_random(PRESETS["vision"], networks.model(made.layers, sources=made.sources))


def test_a_linear_layer_at_each_step_is_a_convolution_of_one_row():
    made, _ = quantized(linear_at_each_step(), Choices(recipe=WIDE), ragged=False)
    each = next(layer for layer in made.layers if layer.name == "each")
    assert isinstance(each, Conv)
    assert (each.shape, each.size) == ((6, 1, 6), (1, 1))
    recurrent = [layer for layer in made.layers if isinstance(layer, IntegerRecurrent)]
    assert [layer.name for layer in recurrent] == ["one", "two"]


def test_a_linear_layer_at_each_step_needs_sequences_of_one_length():
    with pytest.raises(Unsupported, match="'each': it computes each time step of a sequence of any length"):
        quantized(linear_at_each_step(), Choices(recipe=WIDE))


def test_both_ends_and_all_steps_of_one_layer_can_be_read():
    chain = Chain((5,), sequence=True).recurrent(lstm.LSTM, "one", 4, 5, both=True).last("ends")
    chain.nodes.append(replace(Chain((8,), sequence=True, seed=3).recurrent(rnn.TANH, "two", 3, 8).nodes[0],
                               sources=("one",)))
    chain.last("end").add(Concatenation(), "all", ("ends", "end"))
    network = chain.dense("answer", 3, 11).network()
    made, samples = quantized(network, Choices(recipe=WIDE))
    assert [layer.name for layer in made.layers] == [
        "one", "one-reverse", "one-both", "one-last", "two", "all", "answer"]
    assert_close(network, made, samples, 0.05)


@pytest.mark.parametrize(("network", "message"), [
    (Chain((5,), sequence=True).recurrent(lstm.LSTM, "one", 4, 5).network(), "output: a sequence; put a dense layer"),
    (Chain((5,)).dense("d", 3, 5).add(HardSigmoid(alpha=-1.0), "h").network(), "'h': a hard sigmoid whose factor is "),
])
def test_what_no_layer_computes_is_refused(network, message):
    with pytest.raises(Unsupported, match=message):
        plan(network)
