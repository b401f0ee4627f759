"""Imported networks: modules of PyTorch that compute the same, and quantised models with golden's bits."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.datasets.samples import UNLABELLED, DataSet, Samples, Task
from concord.net import network as golden
from concord.net.cells import gru, lstm, rnn
from concord.net.cells.registry import CELLS
from concord.net.graph import Graph
from concord.net.layers.recurrent import Recurrent
from concord.net.ops.pointwise import HardSigmoid, Relu
from concord.net.ops.reshape import Flatten
from concord.net.ops.scale import Affine
from concord.net.ops.weighted import Convolution, Linear
from concord.net.quantize.choices import BlockRecipe
from concord.net.quantize.recipe import ActivationTraining, Gates, Recipe, WeightTraining
from concord.tests import float_networks
from concord.tests.float_networks import Chain

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
from concord.net.names import layer_names
from concord.net.quantize.choices import Choices
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.plan import Unsupported, plan
from concord.net.quantize.quantized import calibrate, prepared
from concord.net.quantize.source import NetworkWithData, source
from concord.train.lib.export import patterns
from concord.train.lib.samples import SampleTensors, loss_of, trainable
from concord.train.network.quantized_network import QuantizedNetwork
from concord.train.runs.imported import train_imported

pytestmark = pytest.mark.usefixtures("seeded")
FEED_FORWARD = {"images": float_networks.images, "residual": float_networks.residual, "line": float_networks.line,
                "before": float_networks.before_layers, "perceptron": float_networks.perceptron,
                "gated images": float_networks.gated_images, "excited": float_networks.excited,
                "enlarged": float_networks.enlarged,
                "gated vectors": float_networks.gated_vectors, "leaky": float_networks.leaky,
                "gelus": float_networks.gelus, "more functions": float_networks.more_functions,
                "offsets": float_networks.offsets, "reductions": float_networks.reductions,
                "pixel reductions": float_networks.pixel_reductions}
RECURRENT = {
    **{name: (cell, {}) for name, cell in CELLS.items()}, "both": (lstm.LSTM, {"both": True}),
    "both gru": (gru.AFTER, {"both": True}), "mixed": (rnn.RELU, {"second": gru.BEFORE})}


def data_for(network: Graph, count: int = 24, task: Task = Task.CLASSIFICATION, outputs: int = 4) -> DataSet:
    """Random samples of a network's shape."""
    rng = np.random.default_rng(1)
    shape = (count, 6, *network.shape) if network.sequence else (count, np.prod(network.shape))
    x = rng.uniform(-1, 1, shape).astype(np.float16).view(np.uint16)
    lengths = rng.integers(2, 7, count) if network.sequence else None
    labels = {Task.CLASSIFICATION: np.arange(count, dtype=np.uint8) % 3, Task.ANOMALY: np.arange(count) % 2,
              Task.REGRESSION: rng.normal(5, 3, (count, outputs)).astype(np.float32), Task.NONE: None}[task]
    samples = Samples(inputs=x, lengths=lengths, labels=labels, classes=())
    return DataSet(name="random", task=task, shape=network.shape, train=samples, test=samples.first(10),
                   calibration=None, description="data = \"random\"")


def given(network: Graph, **options) -> NetworkWithData:
    return source(network, data_for(network, **options))


def folded(network: Graph) -> Graph:
    return plan(network).graph


def quantized(found: NetworkWithData, choices: Choices, *shown) -> QuantizedNetwork:
    """The network with quantisers, by its calibration set."""
    arithmetic = prepared(found.network, choices, found.steps)
    calibrate(arithmetic, found.numbers(found.calibration), found.calibration.lengths, *shown)
    return QuantizedNetwork(arithmetic)


def assert_golden(found: NetworkWithData, net):
    """Assert that the lowered network gives golden's bits, which differ between samples."""
    layers, sources = net.lower()
    model, samples = networks.model(layers, sources=sources), found.calibration
    outputs = golden.outputs(model, samples.inputs, samples.lengths)
    assert np.array_equal(outputs, patterns(SampleTensors.of(samples).outputs(net, lowered=True)))
    assert (outputs != outputs[0]).any(), "every sample gives the same"


def step(found: NetworkWithData, net, lowered: bool):
    part = SampleTensors.of(found.data.train)
    loss = loss_of(found.data.task, part)
    optimiser = torch.optim.SGD(net.groups(0.002), momentum=0.9)
    index = torch.arange(len(part))
    loss(net.train()(*part.at(index), lowered=lowered), index).backward()
    before = [p.detach().clone() for p in net.parameters()]
    optimiser.step()
    assert any((p != q).any() for p, q in zip(net.parameters(), before, strict=True))
    net.bound()
    net.eval()


def test_what_is_folded_computes_the_same():
    network = float_networks.images()
    made = folded(network)
    assert not made.has(Affine, HardSigmoid)
    assert [node.name for node in made.nodes if isinstance(node.op, Convolution)][0] == "norm", (
        "an offset before padding is a layer")
    x = np.random.default_rng(0).normal(size=(3, 2, 9, 8))
    np.testing.assert_allclose(made.run(x), network.run(x), rtol=1e-5)
    unpadded = Chain((2, 6, 6)).norm("n", 2).conv("c", 4, 2, groups=2).add(Flatten(), "f").dense("d", 3, 64).network()
    made = folded(unpadded)
    assert [type(node.op) for node in made.nodes] == [Convolution, Flatten, Linear]
    x = np.random.default_rng(0).normal(size=(3, 2, 6, 6))
    np.testing.assert_allclose(made.run(x), unpadded.run(x), rtol=1e-4)


def test_ranges_of_a_quantized_network_are_found_anew():
    chain = Chain((12,)).dense("one", 8, 12)
    chain.quantizer("q", scale=0.1, zero_point=3).add(Relu(), "r")
    chain.quantizer("p", scale=0.1, signed=False).dense("two", 4, 8)
    network = chain.network()
    assert [type(node.op) for node in folded(network).nodes] == [Linear, Relu, Linear]
    found = given(network)
    x = found.numbers(found.calibration)
    assert np.abs(folded(network).run(x) - network.run(x)).max() < 0.3
    assert_golden(found, quantized(found, Choices()))


def test_layers_have_the_names_of_their_nodes():
    found = given(float_networks.images())
    names = [layer.name for layer in quantized(found, Choices()).lower()[0]]
    assert names == ["norm", "first_Conv", "pool", "type", "sum_1", "sum", "wide", "both", "average", "last",
                     "hidden", "out_put"]
    assert layer_names(["a/b", "a.b", "", "é"]) == {"a/b": "a_b", "a.b": "a_b_2", "": "layer", "é": "é"}
    assert layer_names(["net/Relu;net/conv/BiasAdd", ";x"]) == {"net/Relu;net/conv/BiasAdd": "net_Relu", ";x": "layer"}


@pytest.mark.parametrize("of_weights", list(WeightTraining))
@pytest.mark.parametrize("name", FEED_FORWARD)
def test_integers_equal_golden(name, of_weights):
    found = given(FEED_FORWARD[name]())
    for activations in list(ActivationTraining)[list(WeightTraining).index(of_weights)::3]:
        choices = Choices(recipe=Recipe(weights_bits=6, input_bits=7, weights=of_weights, activations=activations,
                                        normalise=name == "images"))
        net = quantized(found, choices)
        for lower in (False, True):
            assert_golden(found, net)
            step(found, net, lower)
        assert_golden(found, net)


@pytest.mark.parametrize("name", ["residual", "perceptron"])
def test_block_floating_point_equals_golden(name):
    found = given(FEED_FORWARD[name]())
    choices = Choices(recipe=BlockRecipe(weights_bits=6, input_bits=6, block=8))
    net = quantized(found, choices)
    step(found, net, False)
    assert_golden(found, net)


@pytest.mark.parametrize("arithmetic", ["integer", "bfp"])
@pytest.mark.parametrize("make", [float_networks.perceptron, float_networks.residual])
def test_quantized_results_are_trained_and_equal_golden(make, arithmetic):
    found = given(make())
    net = quantized(found, QuantizationOptions(preset="vision", arithmetic=arithmetic, output_bits=8).choices())
    assert any(name.endswith("_result") for name in net.layers)
    assert_golden(found, net)
    for lowered in (False, True):
        step(found, net, lowered)
    assert_golden(found, net)


@pytest.mark.parametrize(("name", "options"), [
    *((name, {}) for name in RECURRENT), ("lstm", {"bias_bits": 24}),
    *((name, {"arithmetic": "bfp"}) for name in ("lstm", "gru", "both"))])
def test_quantized_gates_are_trained_and_equal_golden(name, options):
    cell, shape = RECURRENT[name]
    found = given(float_networks.sequences(cell, **shape))
    net = quantized(found, QuantizationOptions(preset="vision", output_bits=8, **options).choices())
    assert_golden(found, net)
    for lowered in (False, True):
        step(found, net, lowered)
    assert_golden(found, net)
    layers = [layer for layer in net.lower()[0] if isinstance(layer, Recurrent)]
    assert layers
    assert all(layer.result_format.bits == 8 for layer in layers)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_networks_equal_golden(name, blocks):
    cell, options = RECURRENT[name]
    found = given(float_networks.sequences(cell, **options))
    recipe = BlockRecipe(weights_bits=8, input_bits=8, block=8) if blocks else Recipe(
        weights_bits=8, input_bits=8, symmetric=(True, True))
    choices = Choices(recipe=recipe, gates=Gates(shared=not blocks))
    shown = []
    net = quantized(found, choices, lambda *words: shown.append(words))
    assert len(shown) == 5
    assert_golden(found, net)
    samples = found.calibration
    want = found.network.run(found.numbers(samples), samples.lengths)
    assert np.abs(SampleTensors.of(samples).outputs(net).numpy() - want).mean() < 0.15 * np.abs(want).mean()
    for lower in (False, True):
        step(found, net, lower)
        assert_golden(found, net)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("make", [float_networks.convolutions_before_and_after, float_networks.linear_at_each_step])
def test_networks_of_convolutions_and_recurrent_layers_are_trained(make, blocks):
    """Peepholes, both directions, and layers at each time step; every layer's parameters have gradients."""
    network = make()
    data = data_for(network)
    train = replace(data.train, lengths=None)
    found = source(network, replace(data, train=train))
    net = quantized(found, Choices(recipe=BlockRecipe(weights_bits=8, input_bits=8, block=8)) if blocks else Choices())
    for lower in (False, True):
        assert_golden(found, net)
        step(found, net, lower)
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for name, p in net.named_parameters()
                   if "weight" in name)
    assert_golden(found, net)


def test_a_network_that_mixes_layers_learns(tmp_path):
    """Its recurrent layers are trained by Adam, although a sample is an image."""
    rng, labels = np.random.default_rng(2), np.arange(240) % 3
    patterns_of_classes = rng.normal(size=(3, 144))
    x = (patterns_of_classes[labels] + rng.normal(size=(240, 144))).astype(np.float16).view(np.uint16)
    train = Samples(inputs=x[:200], lengths=None, labels=labels[:200].astype(np.uint8), classes=())
    test = Samples(inputs=x[200:], lengths=None, labels=labels[200:].astype(np.uint8), classes=())
    network = float_networks.convolutions_before_and_after()
    data = replace(data_for(network), train=train, test=test)
    made = train_imported(tmp_path / "m", network=network, data=data, choices=Choices(), epochs=(12, 1), rate=5e-3)
    assert made.provenance.golden_accuracy > 0.6


@pytest.mark.parametrize("recipe", [
    Recipe(weights_bits=6, input_bits=7, weights=WeightTraining.LSQ, activations=ActivationTraining.LSQ,
           symmetric=(True, True)),
    Recipe(weights_bits=5, input_bits=6, weights=WeightTraining.DOREFA, normalise=True, input_kept=True),
    Recipe(weights_bits=8, input_bits=8, bits={"each": (4, 5)})], ids=["lsq", "dorefa", "bits"])
def test_layers_beside_recurrent_ones_are_trained_as_any_other(recipe):
    network = float_networks.convolutions_before_and_after()
    found = given(network)
    net = quantized(found, Choices(recipe=recipe))
    for lower in (False, True):
        step(found, net, lower)
        assert_golden(found, net)
    widths = {layer.name: layer.weights_format.bits for layer in net.lower()[0] if hasattr(layer, "weights_format")}
    assert widths["each"] == recipe.bits.get("each", (recipe.weights_bits + recipe.weights.odd,))[0]


@pytest.mark.parametrize("convolution", [False, True])
def test_scales_of_the_input_stay_apart_under_training(convolution):
    """R and O hold them, as they do after quantisation without training."""
    scale = np.array([0.5, 30.0, 4.0]), np.array([0.1, -2.0, 0.0])
    if convolution:
        chain = Chain((3, 5, 5)).affine("a", *scale).conv("c", 4, 3).add(Relu(), "r").add(Flatten(), "f")
        network = chain.dense("d", 4, 36).network()
    else:
        network = Chain((3,)).affine("a", *scale).dense("c", 6, 3).add(Relu(), "r").dense("d", 4, 6).network()
    found = given(network)
    arithmetic = prepared(network, Choices(), found.steps, scales_apart=True)
    calibrate(arithmetic, found.numbers(found.calibration))
    assert arithmetic.rows["c"].line is not None
    net = QuantizedNetwork(arithmetic)
    for lower in (False, True):
        assert_golden(found, net)
        step(found, net, lower)
    assert_golden(found, net)
    layer = net.lower()[0][0]
    assert len(set(layer.quant_scale.tolist())) == 3


@pytest.mark.parametrize(("network", "message"), [
    (Chain((1, 4, 4)).average_pool("p", padding=(1, 0, 0, 0), count_padding=False), "'p': .* not count its"),
    (Chain((1, 4, 4)).average_pool("p", dilation=(2, 2), count_padding=True), "'p': .* with a dilation")])
def test_what_has_no_quantized_form_is_named(network, message):
    with pytest.raises(Unsupported, match=message):
        plan(network.network())


@pytest.mark.parametrize(("network", "change", "message"), [
    (float_networks.images, {"shape": (9, 8, 2)}, "a sample is 9 x 8 x 2, .* channels first; write `layout = \"hwc\"`"),
    (float_networks.images, {"shape": (8, 9, 2)}, "a sample is 8 x 9 x 2, but images takes 2 x 9 x 8"),
    (float_networks.perceptron, {"shape": (13,)}, "a sample is 13 numbers, but perceptron takes 12 numbers; give the"),
    (float_networks.sequences, {"shape": (6,)}, "a time step is 6 numbers, but sequences takes 5 numbers"),
    (float_networks.perceptron, {"train": None}, "no samples to calibrate with")])
def test_data_that_do_not_fit_are_refused(network, change, message):
    network = network()
    with pytest.raises(ValueError, match=message):
        source(network, replace(data_for(network), **change))


def test_calibration_files_hold_samples_of_the_network(tmp_path):
    network, path = float_networks.perceptron(), tmp_path / "c.npy"
    for shape in (5, 12), (5, 3, 4), (5, 1, 12):
        np.save(path, np.ones(shape, np.float32))
        assert source(network, None, path).calibration.inputs.shape == (5, 12)
    images = float_networks.images()  # 2 x 9 x 8
    np.save(path, np.ones((5, 9, 8, 2), np.float32))
    with pytest.raises(ValueError, match="a sample is 9 x 8 x 2, but images takes 2 x 9 x 8, as its file does"):
        source(images, None, path)
    np.save(path, np.ones((5, 13), np.float32))
    with pytest.raises(ValueError, match=r"takes numbers\[samples, 12\], not float"):
        source(network, None, path)


def test_labels_that_do_not_fit_are_refused():
    network = float_networks.perceptron(outputs=2)
    with pytest.raises(ValueError, match="random, train samples: sample 2 has class 2, but the network has the outputs "
                                         "0..1; check the labels"):
        source(network, data_for(network))
    with pytest.raises(ValueError, match="4 targets for each sample, but the network has 2"):
        source(network, data_for(network, task=Task.REGRESSION))
    data = data_for(network, task=Task.REGRESSION)
    classes = replace(data.train, labels=np.array([[0.0], [1.0]] * (len(data.train) // 2)))
    with pytest.raises(ValueError, match="1 target for each sample, .* labels that are classes are saved as integers"):
        source(network, replace(data, train=classes))
    with pytest.raises(ValueError, match="an anomaly is scored by one output, or by as many as the 12"):
        source(network, data_for(network, task=Task.ANOMALY))


def test_a_batch_without_classes_has_no_loss():
    """Where few time steps have a class, a batch may have none, whose mean would be NaN."""
    labels = np.full((4, 3), UNLABELLED)
    labels[0, :2] = 1, 0
    samples = Samples(inputs=np.zeros((4, 3, 2), np.uint16), labels=labels)
    loss, made = loss_of(Task.CLASSIFICATION, SampleTensors.of(samples)), torch.randn(4, 6, requires_grad=True)
    one = torch.nn.functional.cross_entropy(made.unflatten(1, (2, 3))[:1, :, :2], torch.tensor([[1, 0]]))
    assert loss(made, torch.arange(4)) == one
    empty = loss(made[1:], torch.arange(1, 4))
    assert empty == 0
    empty.backward()
    assert not made.grad.any()
    data = DataSet(name="steps", task=Task.CLASSIFICATION, shape=(2,), train=samples.part(slice(1, 4)), test=None,
                   calibration=None, description="")
    with pytest.raises(ValueError, match="steps: no time step or pixel of the training samples has a class"):
        trainable(data, 6)


@pytest.mark.parametrize(("targets", "unit"), [
    ([[5.1], [5.1], [5.1]], 5.1**2), ([[0.0], [0.0], [0.0]], 1), ([[1.0], [3.0], [5.0]], 8 / 3),
    ([[1e-8], [3e-8], [5e-8]], 8e-16 / 3)])
def test_a_mean_square_has_a_unit_of_any_targets(targets, unit):
    """Equal targets have no variance, by which any error would be infinite."""
    samples = Samples(inputs=np.zeros((3, 2), np.uint16), labels=np.float32(targets))
    loss = loss_of(Task.REGRESSION, SampleTensors.of(samples))
    made = torch.tensor(targets) + unit**0.5
    assert loss(made, torch.arange(3)).item() == pytest.approx(1, rel=1e-4)


def test_batch_normalisation_that_is_not_there_cannot_stay(tmp_path):
    network, choices = float_networks.perceptron(), Choices(recipe=Recipe(normalise=True))
    with pytest.raises(ValueError, match="--batch-norm: perceptron has no batch normalisation behind a convolution"):
        train_imported(tmp_path / "m", network=network, data=data_for(network), choices=choices, epochs=(1, 0))


def with_small_inputs(network: Graph, data: DataSet, share: float) -> tuple[Graph, DataSet]:
    """A perceptron and its data, where inputs are smaller and weights larger by a factor."""
    def smaller(samples: Samples) -> Samples:
        return replace(samples, inputs=(samples.inputs.view(np.float16) * np.float16(share)).view(np.uint16))

    first, *nodes = network.nodes
    first = replace(first, op=replace(first.op, weight=(first.op.weight / share).astype(np.float32)))
    return replace(network, nodes=(first, *nodes)), replace(
        data, train=smaller(data.train), test=smaller(data.test))


def test_a_start_outside_binary16_is_named_before_training(tmp_path):
    """The steps of such small inputs are too small for binary16, which is no divergence of training."""
    network = float_networks.perceptron()
    network, data = with_small_inputs(network, data_for(network), 1e-4)
    with pytest.raises(ValueError, match="quant_scale: .* is outside binary16; rescale the layer"):
        train_imported(tmp_path / "m", network=network, data=data, epochs=(1, 1),
                       choices=Choices(recipe=Recipe(weights_bits=8, input_bits=8)))


def test_ranges_of_small_inputs_that_are_not_trained_stay():
    network = float_networks.perceptron()
    network, data = with_small_inputs(network, data_for(network), 1e-4)
    found = source(network, data)
    arithmetic = prepared(network, Choices(recipe=Recipe(
        weights_bits=4, input_bits=2, activations=ActivationTraining.HWGQ)))
    calibrate(arithmetic, found.numbers(found.calibration))
    net = QuantizedNetwork(arithmetic)
    before = [layer.inputs.saturation.item() for layer in net.layers.values()]
    net.bound()
    assert before[0] < 1e-3
    assert [layer.inputs.saturation.item() for layer in net.layers.values()] == before


def test_choices_of_another_kind_are_refused():
    found = given(float_networks.sequences())
    with pytest.raises(ValueError, match="there is no layer 'rnn_one' to give bits to; the network has hidden, more"):
        prepared(found.network, Choices(recipe=Recipe(bits={"rnn_one": (4, 4)})))
    with pytest.raises(ValueError, match="has no bound, and must keep its bits"):
        prepared(float_networks.sequences(rnn.RELU), Choices(gates=Gates(outputs=4)))
    with pytest.raises(ValueError, match="--gate-bits, --gate-form and --bias-bits are for recurrent networks"):
        prepared(float_networks.perceptron(), Choices(gates=Gates(outputs=4)))
