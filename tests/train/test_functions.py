"""Networks whose forward calls functions instead of modules are quantised as those of modules."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")

from concord.frontends.torch.read import graph_of
from concord.net.ops.pooling import MaxPooling
from concord.net.quantize.choices import Choices
from concord.net.quantize.plan import AVERAGES, Unsupported
from concord.net.quantize.quantized import prepared
from concord.net.quantize.recipe import ActivationMethod, Methods, Recipe
from concord.train.lib.export import patterns
from concord.train.network.quantized_network import behind_quantizers
from torch import nn
from torch.nn import functional

RECIPE = Recipe(weights_bits=8, input_bits=8, symmetric=(True, True))


class Functional(nn.Module):
    """A network of functions and methods; one relu serves several layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.relu = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()
        self.wide, self.dense = nn.Linear(16, 4), nn.Linear(4, 3)

    def forward(self, x):
        x = functional.max_pool2d(self.relu(self.first(x)), 2)
        x = functional.dropout(x, 0.5, self.training)
        x = self.relu(self.second(x) + x)
        y = self.wide(functional.avg_pool2d(x, 2).view(x.size(0), -1))
        return self.dense(self.relu(x.mean((2, 3)) + y).reshape(y.shape[0], -1))


class Modules(nn.Module):
    """The same network of modules."""

    def __init__(self, other: Functional):
        super().__init__()
        self.first, self.second, self.wide, self.dense = other.first, other.second, other.wide, other.dense
        self.relus = nn.ModuleList(nn.ReLU() for _ in range(3))
        self.pool, self.halves, self.mean, self.flat = (
            nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, x):
        x = self.pool(self.relus[0](self.first(x)))
        x = self.relus[1](self.second(x) + x)
        y = self.wide(self.flat(self.halves(x)))
        return self.dense(self.relus[2](self.flat(self.mean(x)) + y))


def outputs(layers, sources, images) -> np.ndarray:
    """The result of golden layers, uint16[samples, outputs]."""
    made, before = {"": patterns(images.flatten(1))}, ""
    for layer in layers:
        made[layer.name] = layer.run([made[name] for name in sources.get(layer.name, (before,))], None).outputs
        before = layer.name
    return made[before]


@pytest.fixture(scope="module")
def images():
    torch.set_num_threads(1)
    return torch.rand(20, 1, 10, 10, generator=torch.Generator().manual_seed(0)).half().float()


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(1)
    return Functional().eval()


def kind(part):
    """The class of a part's operator; averages of windows and of whole images are of one kind."""
    return AVERAGES if isinstance(part.op, AVERAGES) else type(part.op)


def test_functions_are_quantized_as_modules(net, images):
    by_function, by_module = (behind_quantizers(each, images, RECIPE) for each in (net, Modules(net).eval()))
    assert list(map(kind, by_function.plan.parts)) == list(map(kind, by_module.plan.parts))
    kinds = [kind(part) for part in by_function.plan.parts]
    assert kinds.count(MaxPooling) == 1
    assert kinds.count(AVERAGES) == 2
    with torch.no_grad():
        assert torch.equal(by_function(images, lowered=True), by_module(images, lowered=True))
        assert torch.allclose(by_function(images), net(images), atol=0.05)


def test_a_functional_network_equals_golden(net, images):
    quantized = behind_quantizers(net, images, RECIPE)
    with torch.no_grad():
        assert np.array_equal(outputs(*quantized.lower(), images), patterns(quantized(images, lowered=True)))


def test_a_network_may_end_with_a_convolution(images):
    torch.manual_seed(2)
    net = nn.Sequential(nn.Conv2d(1, 3, 10), nn.Flatten())
    quantized = behind_quantizers(net, images, RECIPE)
    with torch.no_grad():
        assert quantized(images).shape == net(images).shape == (20, 3)


class Gated(nn.Module):
    """Products of images, of an image and a vector of its channels, and of vectors."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.squeezed = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 1)
        self.silu, self.leaky, self.dense = nn.SiLU(), nn.LeakyReLU(0.2), nn.Linear(4, 3)

    def forward(self, x):
        x = self.second(self.silu(self.first(x)))
        x = torch.sigmoid(self.squeezed(x.mean((2, 3), keepdim=True))) * self.leaky(x)
        y = self.dense(x.mean((2, 3)))
        return functional.silu(y) * functional.gelu(torch.exp(y).sqrt(), approximate="tanh")


def test_products_and_functions_of_tensors(images):
    torch.manual_seed(3)
    net = Gated().eval()
    quantized = behind_quantizers(net, images, RECIPE)
    with torch.no_grad():
        assert torch.allclose(quantized(images), net(images), atol=0.05)
        assert np.array_equal(outputs(*quantized.lower(), images), patterns(quantized(images, lowered=True)))


class Wrong(nn.Module):
    """A network with one operation that cannot be quantised."""

    def __init__(self, operation):
        super().__init__()
        self.conv, self.operation = nn.Conv2d(1, 4, 3), operation

    def forward(self, x):
        return self.operation(self.conv(x)).flatten(1)


@pytest.mark.parametrize(("operation", "sentence"), [
    (lambda x: x.view(x.size(0), 2, -1), "there is no quantised form of view"),
    (lambda x: x[:, :2].reshape(x.shape[0], -1), "there is no quantised form of getitem"),
    (lambda x: x + x.size(0), "there is no quantised form of size"),
    (lambda x: x.mean(1), "there is no quantised form of mean"),
    (lambda x: torch.add(x, torch.relu(x), alpha=2), "there is no quantised form of add"),
    (lambda x: functional.pad(x, (0, x.size(2) % 2)), "there is no quantised form of pad"),
    (lambda x: x.reshape(len(x), -1), "the network cannot be traced .*'len' is not supported"),
    (lambda x: torch.softmax(x.flatten(1), 1), "leave Softmax out: it does not change the order of the classes"),
    (nn.Softmax(1), "leave Softmax out"),
])
def test_other_functions_are_refused(operation, sentence):
    with pytest.raises(Unsupported, match=sentence):
        graph_of(Wrong(operation), (1, 10, 10))


def test_a_layer_used_twice_is_two_layers():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 1, 3)

        def forward(self, x):
            return self.conv(self.conv(x)).flatten(1)

    net, x = Twice().eval(), torch.rand(4, 1, 6, 6)
    made = behind_quantizers(net, x, RECIPE)
    assert list(made.layers) == ["conv", "conv_1"]
    with torch.no_grad():
        assert torch.allclose(made(x), net(x), atol=0.05)


class Relu6(nn.Module):
    """Convolutions with a relu6 between them, once after a maximum, and once after a sum."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 3, 2)
        self.around, self.relu, self.pool = nn.Conv2d(4, 4, 3), nn.ReLU6(), nn.MaxPool2d(2)

    def forward(self, x):
        x = self.pool(self.relu(self.first(x)))
        return self.third(functional.relu6(self.second(x) + self.around(x))).flatten(1)


@pytest.fixture(scope="module")
def wide(images):
    """A network in which each relu6 clips many values."""
    torch.manual_seed(3)
    net = Relu6().eval()
    with torch.no_grad():
        net.first.weight.abs_().mul_(7)
        net.around.weight.abs_().mul_(0.35)
        first = net.first(images)
        pooled = net.pool(net.relu(first))
        assert 0.05 < (first > 6).float().mean() < 0.8
        assert 0.05 < (net.second(pooled) + net.around(pooled) > 6).float().mean() < 0.8
    return net


@pytest.mark.parametrize("method", [ActivationMethod.SEARCH, ActivationMethod.UNIFORM])
def test_codes_clip_a_relu6(wide, images, method):
    quantized = behind_quantizers(wide, images, replace(RECIPE, methods=Methods(activations=method)))
    for name in "second", "around", "third":
        inputs = quantized.layers[name].inputs
        assert 3 < (inputs.saturation + inputs.offset).item() < 6.00001
    with torch.no_grad():
        assert torch.allclose(quantized(images), wide(images), atol=0.2)
        assert np.array_equal(outputs(*quantized.lower(), images), patterns(quantized(images, lowered=True)))


def test_codes_clip_a_relu6_behind_a_maximum(wide, images):
    """The maximum is in steps of the codes there, in which 6 means nothing."""
    torch.manual_seed(6)
    net = nn.Sequential(wide.first, nn.MaxPool2d(2), nn.ReLU6(), nn.Conv2d(4, 3, 4), nn.Flatten()).eval()
    quantized = behind_quantizers(net, images, RECIPE)
    with torch.no_grad():
        assert torch.allclose(quantized(images), net(images), atol=0.1)
        assert torch.allclose(quantized(images), quantized(images, lowered=True), atol=0.1)


def test_training_keeps_the_clip_of_a_relu6(wide, images):
    quantized = behind_quantizers(wide, images, RECIPE)
    for layer in quantized.layers.values():
        torch.nn.init.constant_(layer.inputs.saturation, 9)
    quantized.bound()
    tops = [(layer.inputs.saturation + layer.inputs.offset).item() for layer in quantized.layers.values()]
    assert tops[0] >= 9
    assert tops[1:] == pytest.approx([6, 6, 6])


@pytest.mark.parametrize(("operation", "recipe"), [
    (lambda x: functional.relu6(x).mean((2, 3)), replace(RECIPE, input_bits=None)),
    (nn.Sequential(nn.ReLU6(), nn.Conv2d(4, 2, 3)), replace(RECIPE, input_bits=None)),
])
def test_a_relu6_that_no_code_clips_is_refused(operation, recipe):
    with pytest.raises(Unsupported, match="'conv': a relu6 is the clip of integer codes"):
        prepared(graph_of(Wrong(operation), (1, 10, 10)), Choices(recipe=recipe), machine=False)
