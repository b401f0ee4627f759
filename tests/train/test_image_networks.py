"""Convolutional networks in integers and in block floating point: golden's layers give the results of training."""

from collections import OrderedDict

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.net import float_network as reference
from concord.net import network
from concord.net.arithmetic.native_vectors import adjacent, flattened, joined
from concord.net.layers.convolution import Along
from concord.net.layers.pooling import Average, BlockAverage
from concord.net.quantize.choices import BlockRecipe
from concord.net.quantize.recipe import ActivationTraining, Recipe, WeightTraining

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")

from concord.frontends.torch.read import graph_of
from concord.net.quantize.plan import Unsupported, plan
from concord.train.lib.export import patterns
from concord.train.lib.fit import cross_entropy
from concord.train.lib.networks import Branches, Residual, convolution
from concord.train.network.quantized_network import QuantizedNetwork, behind_quantizers
from torch import nn
from torch.nn import functional

#: PyTorch warns that its padding "same" of even kernels costs a copy.
OF_IMAGES = [pytest.mark.usefixtures("seeded"), pytest.mark.filterwarnings("ignore:Using padding='same'")]
pytestmark = OF_IMAGES


def head(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def resnet() -> nn.Sequential:
    """A residual network with a way around of its own, whose image is not square."""
    body = nn.Sequential(convolution(9, 9, 3), convolution(9, 9, 3, relu=False))
    wider = nn.Sequential(convolution(9, 17, 3, 2), convolution(17, 17, 3, relu=False))
    return nn.Sequential(
        convolution(1, 9, 3, 2), Residual(body, nn.Identity(), True),
        Residual(wider, convolution(9, 17, 1, 2, relu=False), True), head(17))


def mobilenet(relu6: bool = True) -> nn.Sequential:
    """Inverted bottlenecks, depthwise inside, with padding on one side as in TensorFlow."""
    relu = nn.ReLU6 if relu6 else nn.ReLU

    def block(inputs: int, stride: int) -> nn.Sequential:
        pad, own = ([nn.ZeroPad2d((0, 1, 0, 1))], 0) if stride == 2 else ([], 1)
        return nn.Sequential(
            nn.Conv2d(inputs, 18, 1, bias=False), nn.BatchNorm2d(18), relu(), *pad,
            nn.Conv2d(18, 18, 3, stride, own, groups=18, bias=False), nn.BatchNorm2d(18), relu(),
            nn.Conv2d(18, inputs, 1, bias=False), nn.BatchNorm2d(inputs))

    return nn.Sequential(
        nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(1, 6, 3, 2, bias=False), nn.BatchNorm2d(6),
        nn.ReLU(), Residual(block(6, 1), nn.Identity(), False), block(6, 2), head(6))


def inception() -> nn.Sequential:
    """Branches of several sizes, whose parts do not fill native vectors, an average among them; a flattened image."""
    pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), convolution(6, 5, 1))
    mean = nn.Sequential(nn.AvgPool2d(3, 1, 1), convolution(6, 3, 1))
    block = Branches(convolution(6, 7, 1), nn.Sequential(convolution(6, 4, 1), convolution(4, 7, 3)), pooled, mean)
    return nn.Sequential(
        convolution(1, 6, 3), nn.MaxPool2d((2, 3), (2, 1), (1, 0)), block, convolution(22, 22, 3, groups=22),
        nn.AvgPool2d((2, 2)), nn.Flatten(), nn.Linear(22 * 3 * 4, 10))


class Shapes(nn.Module):
    """Strides, paddings and dilations of their own along each axis; a flattened image beside an average."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 5, (5, 3), (2, 1), (2, 1))
        self.dilated = nn.Conv2d(5, 6, (2, 3), padding="same", dilation=(1, 2), groups=1)
        self.side, self.mean = nn.Conv2d(6, 4, 2, 2), nn.AdaptiveAvgPool2d(1)
        self.last = nn.Linear(6 + 4 * 2 * 5, 10)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = torch.relu(self.dilated(functional.pad(x, (1, 0))))
        return self.last(torch.cat([self.mean(x).flatten(1), torch.relu(self.side(x)).flatten(1)], 1))


class Line(nn.Module):
    """One-dimensional layers."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.pool = nn.Conv1d(3, 8, 5, 2, 2, bias=False), nn.BatchNorm1d(8), nn.MaxPool1d(2)
        self.second = nn.Conv1d(8, 8, 3, padding=2, dilation=2)
        self.third = nn.Conv1d(8, 8, 4, padding="same", groups=8)
        self.halves, self.mean, self.last = nn.AvgPool1d(2), nn.AdaptiveAvgPool1d(1), nn.Linear(8, 10)

    def forward(self, x):
        x = self.pool(torch.relu(self.norm(self.first(x))))
        x = torch.relu(self.third(torch.relu(self.second(x))) + x)
        return self.last(self.mean(self.halves(x)).flatten(1))


class Curved(nn.Module):
    """Sigmoids and hyperbolic tangents after every kind of operation."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Conv2d(1, 6, 3), nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 5, 3)
        self.mean = nn.AvgPool2d(2)
        self.hidden, self.last = nn.Linear(5 * 3 * 3, 8), nn.Linear(8, 10)
        for layer in self.first, self.second, self.third, self.hidden, self.last:
            nn.init.normal_(layer.weight, std=3 * layer.weight[0].numel() ** -0.5)  # so that results differ

    def forward(self, x):
        x = torch.sigmoid(functional.max_pool2d(self.first(x), 2, 1))
        x = torch.tanh(torch.tanh(self.second(x)) + x)
        x = torch.sigmoid(self.mean(torch.tanh(self.third(x)))).flatten(1)
        return torch.sigmoid(self.last(torch.tanh(self.hidden(x))))


#: Networks and the shapes of their inputs.
NETWORKS = {
    "resnet": (resnet, (1, 12, 10)), "mobilenet": (mobilenet, (1, 12, 10)), "inception": (inception, (1, 10, 10)),
    "shapes": (Shapes, (1, 10, 10)), "line": (Line, (3, 24)),
    "curved": (Curved, (1, 11, 11))}
#: A relu6 is a clip of integer codes, so block floating point has none.
IN_BLOCKS = NETWORKS | {"mobilenet": (lambda: mobilenet(False), (1, 12, 10))}


def made(name: str, known=NETWORKS) -> tuple[nn.Module, torch.Tensor]:
    """A network whose batch normalisation has statistics, and binary16 images."""
    make, shape = known[name]
    net, x = make(), torch.rand(12, *shape).half().float()
    net.train()(x * 2)
    return net.eval(), x


def assert_golden(quantized: QuantizedNetwork, x: torch.Tensor):
    """Assert that the result of every layer has golden's bits, and that golden's model can be compared with FP32."""
    layers, sources = quantized.lower()
    model, bits = networks.model(layers, sources=sources), patterns(x.flatten(1))
    with torch.no_grad():
        want = quantized.trace(x, lowered=True)
    found = network.forward(model, bits)
    for layer, trace in zip(layers, found, strict=True):
        assert np.array_equal(trace.outputs, patterns(want[layer.name].flatten(1))), layer.name
    assert (found[-1].outputs != found[-1].outputs[0]).any(), "every image gives the same"


def step(quantized: QuantizedNetwork, x: torch.Tensor, lowered: bool):
    """Train one step."""
    optimiser = torch.optim.SGD(quantized.groups(0.02), momentum=0.9)
    cross_entropy(quantized.train()(x, lowered), torch.arange(len(x)) % 10).backward()
    optimiser.step()
    quantized.bound()
    quantized.eval()


@pytest.mark.parametrize("of_weights", list(WeightTraining))
@pytest.mark.parametrize("name", NETWORKS)
def test_integers(name, of_weights):
    net, x = made(name)
    for bits, of_activations in zip((4, 7, 4, 7, 4), ActivationTraining, strict=True):
        quantized = behind_quantizers(net, x, Recipe(
            weights_bits=bits, input_bits=bits + 1, symmetric=(True, True), weights=of_weights,
            activations=of_activations, normalise=bits == 7))
        for lowered in (False, True):
            step(quantized, x, lowered)
        assert_golden(quantized, x)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("name", NETWORKS)
def test_block_floating_point(name, bits):
    net, x = made(name, IN_BLOCKS)
    for block in (4, 16):
        quantized = behind_quantizers(net, x, BlockRecipe(weights_bits=bits, input_bits=bits, block=block))
        assert_golden(quantized, x)
        for lowered in (False, True):
            step(quantized, x, lowered)
        assert_golden(quantized, x)


@pytest.mark.parametrize("name", NETWORKS)
def test_eight_bits_are_near_fp32(name):
    """What networks of other geometry compute is what PyTorch computes, in FP32 by golden's layers too."""
    for recipe, known in ((Recipe, NETWORKS), (BlockRecipe, IN_BLOCKS)):
        net, x = made(name, known)
        quantized = behind_quantizers(net, x, recipe(weights_bits=8, input_bits=8))
        with torch.no_grad():
            want = net(x)
            assert (quantized(x) - want).abs().max() < 0.1 * want.abs().max()
        layers, sources = quantized.lower()
        model, bits = networks.model(layers, sources=sources), patterns(x.flatten(1))
        np.testing.assert_allclose(reference.forward(model, bits)[-1], want, atol=1e-4)
        assert max(network.errors(model, network.forward(model, bits), bits)) < 0.2


def test_averages_are_layers_with_a_quantizer():
    net, x = made("inception")
    quantized = behind_quantizers(net, x, Recipe(bits={"4": (4, 6)}, input_bits=5))
    found = {layer.name: layer for layer in quantized.lower()[0] if isinstance(layer, Average)}
    assert {name: layer.input_format.bits for name, layer in found.items()} == {"2_branches_3_0": 5, "4": 6}
    assert found["4"].size == found["4"].stride == (2, 2)
    assert found["2_branches_3_0"].padding == (1, 1, 1, 1)
    assert found["4"].quant_scale is None, "the layer before it answers in steps of its code"
    assert "clipped" in str(quantized.arithmetic.losses["4"])
    blocks = {layer.name: layer for layer in behind_quantizers(net, x, BlockRecipe()).lower()[0]}
    assert isinstance(blocks["4"], BlockAverage)


def test_blocks_begin_with_each_part_and_each_pixel():
    """A concatenation keeps its places through depthwise layers, pooling and sums, until it is flattened."""
    net, x = made("inception")
    layers = {layer.name: layer for layer in behind_quantizers(net, x, BlockRecipe(block=4)).lower()[0]}
    parts = joined([adjacent(count) for count in (7, 7, 5, 3)], 4)
    assert layers["0_0"].along is Along.PATCH
    assert layers["2_branches_0_0"].along is Along.CHANNELS, "an image inside a network is stored pixel by pixel"
    assert layers["2_branches_0_0"].places is None
    assert layers["3_0"].places.tolist() == layers["4"].places.tolist() == parts.tolist()
    assert layers["6"].places.tolist() == flattened(parts, 12, 4).tolist()
    net, x = made("shapes")
    (last,) = (layer for layer in behind_quantizers(net, x, BlockRecipe(block=4)).lower()[0] if layer.name == "last")
    assert last.places.tolist() == joined([adjacent(6), flattened(adjacent(4), 10, 4)], 4).tolist()


def test_an_input_vector_is_dense():
    net, x = nn.Sequential(nn.Flatten(), nn.Linear(48, 4)), torch.rand(3, 3, 4, 4).half().float()
    (layer,) = behind_quantizers(net, x, BlockRecipe(block=16)).lower()[0]
    assert layer.places is None
    assert layer.exponents.shape == (4, 3)


@pytest.mark.parametrize(("module", "message"), [
    (nn.Sequential(nn.ZeroPad2d(1), nn.MaxPool2d(2)), "'1': zeros can be put around the input of a convolution or"),
    (nn.Sequential(nn.ZeroPad2d(1), nn.Flatten(), nn.Linear(36, 2)), "'1': zeros can be put around the input"),
    (nn.Sequential(nn.ConstantPad2d(1, 2.0), nn.Conv2d(1, 2, 3)), "there is no quantised form of ConstantPad2d"),
    (nn.ReflectionPad2d(1), "there is no quantised form of ReflectionPad2d"),
    (nn.Conv2d(1, 2, 3, padding_mode="circular"), "'conv': use a padding of zeros"),
    (nn.MaxPool2d(2, ceil_mode=True), "use no ceil_mode"),
    (nn.AvgPool2d(3, 1, 1, count_include_pad=False), "count the padding in"),
    (nn.AvgPool1d(2, ceil_mode=True), "no ceil_mode"),
    (nn.AdaptiveAvgPool1d(2), "use an average over the whole image, output_size 1")])
def test_what_has_no_quantized_form_is_named(module, message):
    net = module if isinstance(module, nn.Sequential) else nn.Sequential(OrderedDict(conv=module))
    net.add_module("flat", nn.Flatten())
    with pytest.raises(Unsupported, match=message):
        plan(graph_of(net, (2,) if isinstance(net[0], nn.Linear) else (1, 4, 4)))
