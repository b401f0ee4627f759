"""Training in PyTorch: its forward pass gives golden's bits, and its gradients are the published ones."""

import gzip
from itertools import cycle

import numpy as np
import pytest
import torch
from concord.datasets import dataset
from concord.golden.lib import float16
from concord.golden.mfu import activation
from concord.net import network
from concord.net.arithmetic.integer import largest_sum
from concord.net.cells.registry import CELLS
from concord.net.layers.dense import BlockDense
from concord.net.layers.recurrent import BlockRecurrent
from concord.net.lowering import lowering
from concord.net.model import Model, Provenance
from concord.net.model_file import load_model
from concord.net.quantize.recipe import ActivationMethod, Methods, WeightMethod
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format
from concord.train.lib import curves, export
from concord.train.lib import straight_through as through
from concord.train.network.quantized_network import behind_quantizers
from concord.train.recurrent.float_network import FloatClassifier
from concord.train.runs import mlp
from concord.train.runs import recurrent as lstm

NOWHERE = Provenance(command="test", method="random", seed=0, fp32_accuracy=0, quantized_accuracy=0, golden_accuracy=0)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


def model(layers) -> Model:
    none = np.zeros(0, np.uint8)
    shape = {"name": "test", "data": "test", "preprocessing": "none", "classes": (), "layers": tuple(layers)}
    return Model(**shape, provenance=NOWHERE, fp32_predictions=none, quantized_predictions=none)


def jitter(net, seed=0):
    """Change every parameter a little, as training does."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            spread = parameter.std() if parameter.numel() > 1 else parameter.abs() + 0.1
            parameter += 0.1 * spread * torch.rand(parameter.shape, generator=generator)


@pytest.fixture(scope="module")
def images():
    return dataset.load("fashion-mnist").first(600)


@pytest.fixture(scope="module")
def network_of_images(images):
    torch.manual_seed(0)
    return mlp.Float((784, 24, 17, 10))


def test_an_mlp_too_wide_for_float32_equals_golden_too():
    torch.manual_seed(1)
    float_net = mlp.Float((3000, 5))
    bits = np.random.default_rng(0).random((40, 3000)).astype(np.float16).view(np.uint16)
    x = export.floats(bits)
    net = behind_quantizers(float_net, x, mlp.recipe(Format(bits=8), Format(bits=8)))
    with torch.no_grad():
        got = net(x, lowered=True)
    (layer,), _ = net.lower()
    largest = lowering.largest_code(layer.input_format, True)
    assert largest_sum(layer.weights, layer.start, largest) > through.FLOAT32_EXACT
    assert np.array_equal(export.patterns(got), network.forward(model([layer]), bits)[-1].outputs)


@pytest.mark.parametrize("sizes", [(32,), (7, 5)])
def test_lowered_lstm_equals_golden_in_every_bit(sizes):
    utterances = dataset.load("japanese-vowels").first(50)
    x, lengths, _ = lstm.tensors(utterances)
    torch.manual_seed(2)
    float_net = FloatClassifier(12, sizes, 9, CELLS["lstm"])
    net = behind_quantizers(float_net.graph(), x, lstm.choices_of(*[Format(bits=8, symmetric=True)] * 2), lengths)
    jitter(net)
    with torch.no_grad():
        got = net(x, lengths, lowered=True)
    layers, _ = net.lower()
    want = network.forward(model(layers), utterances.inputs, utterances.lengths)[-1].outputs
    assert np.array_equal(export.patterns(got), want)


class Source(torch.autograd.Function):
    """The activation quantiser as it was published, written literally."""

    @staticmethod
    def forward(ctx, x, b, m, levels):
        ctx.save_for_backward((m <= x) & (x <= m + b), x > m + b)
        s = levels / b
        return torch.round(torch.clamp(x - m, torch.zeros(()), b) * s) / s + m

    @staticmethod
    def backward(ctx, gradient):
        inside, above = ctx.saved_tensors
        return gradient * inside, (gradient * above).sum(), (gradient * ~inside).sum(), None


def test_gradients_of_saturation_and_offset_are_the_sources(images, network_of_images):
    fmt, x = Format(bits=3), export.floats(images.inputs)[:50]
    net = behind_quantizers(network_of_images, x, mlp.recipe(fmt, fmt))
    layers = net.layers.values()
    with torch.no_grad():
        for layer in layers:
            layer.inputs.offset += 0.05  # now values lie below, inside and above the range
            layer.inputs.saturation *= 0.7
    parts = [(layer.inputs.saturation, layer.inputs.offset, layer.constant) for layer in layers]
    weights = torch.randn(50, 10, generator=torch.Generator().manual_seed(3))
    net(x).mul(weights).sum().backward()
    got = [[p.grad.clone() for p in of_layer] for of_layer in parts]
    net.zero_grad()
    z = x
    for layer in layers:
        q = Source.apply(z, layer.inputs.saturation, layer.inputs.offset, fmt.levels)
        integers, gain = layer.weights()
        z = q @ (gain.float()[:, None] * integers).T + layer.constant
    z.mul(weights).sum().backward()
    for of_layer, gradients in zip(parts, got, strict=True):
        for parameter, gradient in zip(of_layer, gradients, strict=True):
            assert parameter.grad.abs().max() > 0
            largest = float(parameter.grad.abs().max())
            torch.testing.assert_close(gradient, parameter.grad, rtol=2e-3, atol=2e-3 * largest)


def test_gradients_of_weights_stop_outside_the_range_and_that_of_a_scale_sums_over_its_weights():
    fmt = Format(bits=3)
    w = torch.tensor([[-1.1, -1.0, -0.6, 0.1, 0.75, 0.8]], requires_grad=True)
    change = torch.zeros(1, requires_grad=True)
    q = through.Round.apply(w * 4, fmt.lowest, fmt.highest)
    (0.5 * (1 + change)[:, None] * q / 4).sum().backward()
    assert w.grad.tolist() == [[0.0, 0.5, 0.5, 0.5, 0.5, 0.0]]
    assert change.grad.item() == pytest.approx(float(0.5 * (q.detach() / 4).sum()))


def test_rounding_to_binary16_rounds_once():
    values = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11, 65519.999999, -1e-8, 2.0**-25 * (1 + 2.0**-30)])
    assert through.binary16(torch.from_numpy(values)).tolist() == [1 + 2.0**-10, 1, 65504, 0, 2.0**-24]
    # Already float32, the first is a tie, the third rounds up to an infinity, and the last is a tie.
    assert through.binary16(torch.from_numpy(values).float()).tolist() == [1, 1, np.inf, 0, 0]


@pytest.mark.parametrize(("kind", "function"), [
    (Activation.SIGMOID, activation.sigmoid), (Activation.TANH, activation.tanh)])
def test_curves_are_the_tables(kind, function):
    bits = np.arange(1 << 16, dtype=np.uint16)
    bits = bits[~float16.is_nan(bits)]
    got = curves.CurveFunction.apply(export.floats(bits), kind)
    assert np.array_equal(export.patterns(got), function(bits))


@pytest.fixture(scope="module")
def training_folder(tmp_path_factory):
    """Training data in their original file formats, made from the shipped test sets."""
    folder = tmp_path_factory.mktemp("training")
    for kind in "images-idx3", "labels-idx1":
        source = (dataset.DATA / "fashion-mnist" / f"t10k-{kind}-ubyte.gz").read_bytes()
        for name in "train", "t10k":
            (folder / f"{name}-{kind}-ubyte.gz").write_bytes(source)
    vowels = dataset.load("japanese-vowels")
    lines = ["#comment", "@data"]
    for x, length, label in zip(vowels.inputs.view(np.float16), vowels.lengths, vowels.labels, strict=True):
        channels = [",".join(str(float(v)) for v in channel) for channel in x[:length].T]
        lines.append(":".join([*channels, str(label + 1)]))
    for name in "TRAIN", "TEST":
        (folder / f"JapaneseVowels_{name}.ts").write_text("\n".join(lines))
    return folder


@pytest.mark.parametrize(("weights", "activations"), list(zip(cycle(WeightMethod), ActivationMethod)))
def test_any_start_trains_to_golden_bits(weights, activations, training_folder, tmp_path):
    """Each method; `finish` refuses a network whose golden outputs differ from PyTorch's in a bit."""
    methods, told = Methods(weights=weights, activations=activations, rows=0), []
    made = mlp.train_mlp(
        tmp_path / "m", folder=training_folder, hidden=(16,), epochs=(2, 1, 1), samples=1500, methods=methods,
        progress=lambda *call: told.append(call))
    assert made.provenance.golden_accuracy > 0.5
    assert f"from {weights} for each tensor, {activations}" in made.provenance.method
    (note,) = (call[3] for call in told if call[0] == "PTQ" and call[3].startswith("output: "))
    assert note.startswith("output: weights ")
    assert note.endswith("clipped")


@pytest.mark.parametrize("block", [None, 16])
def test_training_an_mlp_from_end_to_end(block, training_folder, tmp_path):
    calls = []
    options = {"folder": training_folder, "hidden": (16,), "epochs": (2, 1, 1), "samples": 2000, "block": block}
    made = mlp.train_mlp(tmp_path / "m", progress=lambda *call: calls.append(call), **options)
    assert made.provenance.golden_accuracy > 0.6
    assert made.provenance.golden_accuracy == load_model(tmp_path / "m").provenance.golden_accuracy
    assert all(isinstance(layer, BlockDense) == (block is not None) for layer in made.layers)
    phases = ["FP32 training"] + ["PTQ", "QAT", "QAT, lowered"] * (block is None)
    assert list(dict.fromkeys(call[0] for call in calls)) == phases
    mlp.train_mlp(tmp_path / "again", **options)
    for one, other in zip(made.layers, load_model(tmp_path / "again").layers, strict=True):
        weights = "mantissas" if block else "weights"
        assert np.array_equal(getattr(one, weights), getattr(other, weights))


@pytest.mark.parametrize("block", [None, 8])
def test_training_an_lstm_from_end_to_end(block, training_folder, tmp_path):
    options = {"folder": training_folder, "hidden": (8,), "epochs": (8, 1, 1), "block": block}
    made = lstm.train_recurrent(tmp_path / "m", **options)
    assert made.provenance.golden_accuracy > 0.6
    assert isinstance(made.layers[0], BlockRecurrent) == (block is not None)
    assert made.graph.node(made.layers[0].name).op.directions[0].bias.shape == (4, 8)


def test_missing_training_data_are_a_clear_error(tmp_path):
    with pytest.raises(ValueError, match="Fashion-MNIST is not there; `apt-get install dataset-fashion-mnist`"):
        mlp.train_mlp(tmp_path / "m", folder=tmp_path / "none")
    with pytest.raises(ValueError, match="JapaneseVowels_TRAIN.ts is not there; `pip install --no-deps aeon==1.6.0`"):
        lstm.train_recurrent(tmp_path / "m", folder=tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"\0\0\x08\x03"))
    with pytest.raises(ValueError, match="not a whole IDX file"):
        mlp.train_mlp(tmp_path / "m", folder=tmp_path)
    assert not (tmp_path / "m").exists()
