"""The image networks, and starting points of their training."""

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.firmware.session import Session
from concord.net import float_network as reference
from concord.net import network
from concord.net.layer_overflow import Widths, dry_run
from concord.net.model_file import load_model
from concord.net.quantize.choices import BlockRecipe
from concord.net.quantize.recipe import Methods, Recipe, WeightMethod
from concord.sim.machines.host import machine
from concord.spec.machine.config import PRESETS
from safetensors.numpy import load_file

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")

from concord.datasets import dataset
from concord.train.lib import data
from concord.train.lib.export import patterns
from concord.train.lib.networks import NETWORKS, Residual, convolution
from concord.train.network.quantized_network import behind_quantizers
from concord.train.overflow.options import OverflowOptions
from concord.train.runs import compare_starts, image
from concord.train.runs.compare_starts import STARTS, Setting
from concord.train.runs.image import Images, train_image
from torch import nn


@pytest.fixture(scope="module")
def images():
    """The test set, which is also used for training."""
    torch.set_num_threads(1)
    found = dataset.load("fashion-mnist").first(200)
    x = torch.from_numpy(found.inputs.view(np.float16).astype(np.float32)).view(-1, 1, 28, 28)
    labels = torch.from_numpy(found.labels.copy())
    return Images(x, labels, x, labels)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_equal_golden(name, images, tmp_path):
    net = image.trained(name, images, 0, 1, tmp_path)
    x = images.x[:6]
    quantized = behind_quantizers(net, images.x[:50], Recipe(weights_bits=3, input_bits=3))
    layers, sources = quantized.lower()
    with torch.no_grad():
        made = quantized.trace(x, lowered=True)
    passed = {"": patterns(x.flatten(1))}
    for layer, previous in zip(layers, ("", *(layer.name for layer in layers)), strict=False):
        enters = [passed[source] for source in sources.get(layer.name, (previous,))]
        passed[layer.name] = layer.run(enters, None).outputs
        assert np.array_equal(passed[layer.name], patterns(made[layer.name].flatten(1))), layer.name


def test_an_fp32_network_is_trained_once(images, tmp_path):
    first = image.trained("mlp", images, 3, 1, tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.name == "mlp-200-1-3.safetensors"
    again = image.trained("mlp", images, 3, 1, tmp_path)
    assert all((p == q).all() for p, q in zip(first.parameters(), again.parameters(), strict=True))
    assert load_file(path).keys() == first.state_dict().keys()


def test_curves_begin_before_training(images, tmp_path):
    net = image.trained("mlp", images, 0, 8, tmp_path)
    setting = Setting(network="mlp", weights=4, inputs=4)
    assert str(setting) == "mlp W4/A4"
    found = {name: compare_starts.curve(net, setting.recipe(**options), images, 0, 2)
             for name, options in STARTS.items()}
    assert all(len(curve) == 3 for curve in found.values())
    quantized = behind_quantizers(net, images.x, setting.recipe())
    assert found["PTQ"][0] == images.accuracy(quantized)
    assert found["PTQ"][0] > found["FP32"][0]
    frozen = Setting(network="mlp", weights=None, inputs=4).recipe()
    assert frozen.frozen


def test_bands_hold_the_mean():
    mean, half = compare_starts.band([[1.0, 2.0], [3.0, 2.0], [5.0, 2.0]])
    assert mean.tolist() == [3.0, 2.0]
    assert half[0] == pytest.approx(4.303 * 2 / 3**0.5)
    assert half[1] == 0
    assert compare_starts.band([[1.0]])[1].tolist() == [0.0]
    for count, student in (6, 2.571), (10, 2.262), (30, 2.045):  # tables of Student's t, two-sided, 95 %
        values = np.arange(count, dtype=float)
        _, half = compare_starts.band(values[:, None])
        assert half[0] == pytest.approx(student * values.std(ddof=1) / np.sqrt(count), rel=2e-3)


def test_an_image_model(tmp_path, monkeypatch):
    """A network with one scale a tensor and a layer of another width is trained; golden gives its predictions."""
    few = dataset.load("fashion-mnist").first(100)
    monkeypatch.setattr(data, "fashion_mnist", lambda folder: few)
    monkeypatch.setattr(dataset, "load", lambda name: few)
    recipe = Recipe(bits={"0_0": (8, 8)}, methods=Methods(weights=WeightMethod.UNIFORM, rows=0))
    monkeypatch.setitem(NETWORKS, "small", lambda: nn.Sequential(
        convolution(1, 4, 3, 4), Residual(convolution(4, 4, 3, relu=False), nn.Identity(), relu=True), nn.Flatten(),
        nn.Linear(4 * 49, 10)))
    made = train_image(tmp_path / "image.safetensors", network="small", recipe=recipe, epochs=(1, 1, 1), samples=100,
                       overflow=OverflowOptions(accumulator=11))
    again = load_model(tmp_path / "image.safetensors")
    assert again.sources == made.sources
    assert again.layers[0].weights_format.bits == 8
    assert "weights of 4 bits by wrpn" in again.provenance.method
    assert "0_0 8 bits and 8 bits" in again.provenance.method
    assert "; ranges for sums of 11 bits (0_0: parameters x " in again.provenance.method
    assert [use.count.number for use in dry_run(again, few.inputs, None, Widths(sum_bits=11))] == [0] * 3
    right = network.predict(again, few.inputs) == few.labels
    assert right.mean() == again.provenance.golden_accuracy


class Branches(nn.Module):
    """Dense layers with a shortcut around one of them, and a concatenation."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = nn.Linear(12, 16), nn.Linear(16, 16), nn.Linear(12, 8), nn.Linear(24, 5)

    def forward(self, x):
        h = torch.relu(self.a(x))
        h = torch.relu(h + self.b(h))
        return self.d(torch.cat([h, torch.relu(self.c(x))], 1))


@pytest.mark.parametrize(("recipe", "preset"), [
    (Recipe(weights_bits=4, input_bits=4, symmetric=(True, True)), "ulx3s"),
    (BlockRecipe(weights_bits=8, input_bits=8), "speech")])
def test_a_network_of_branches_runs_on_a_machine(recipe, preset):
    torch.manual_seed(0)
    net, x = Branches(), torch.randn(64, 12).half().float()
    quantized = behind_quantizers(net, x, recipe)
    layers, sources = quantized.lower()
    model = networks.model(layers, sources=sources)
    session = Session(machine("golden", PRESETS[preset]), compile_network(model, PRESETS[preset]).firmware)
    outputs = np.stack([session.infer(sample) for sample in patterns(x[:9])])
    with torch.no_grad():
        assert np.array_equal(outputs, patterns(quantized(x[:9], lowered=True)))
        fp32 = reference.forward(model, patterns(x[:9]))
        np.testing.assert_allclose(fp32[-1], net(x[:9]), rtol=1e-4, atol=1e-5)
    errors = network.errors(model, network.forward(model, patterns(x)), patterns(x))
    assert max(errors) < 0.5
