"""Networks in block floating point: the quantiser of training and every layer against golden."""

from collections import OrderedDict

import numpy as np
import pytest
from concord.datasets import dataset
from concord.golden.mvm import quantizer
from concord.net import network
from concord.net.layers.convolution import Along, BlockConv
from concord.net.layers.dense import BlockDense
from concord.net.layers.pooling import BlockAverage
from concord.net.model_file import load_model
from concord.net.quantize.choices import BlockRecipe
from concord.nnp.main import app
from concord.spec.numbers.formats import Format, Rule
from typer.testing import CliRunner

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")

from concord.train.lib import data
from concord.train.lib.export import patterns
from concord.train.lib.fit import cross_entropy
from concord.train.lib.networks import Branches, Residual, convolution
from concord.train.network.quantized_network import QuantizedNetwork, behind_quantizers
from concord.train.qat.block_quantizer import BlocksFunction, quantize_block
from torch import nn

FORMATS = [
    *(Format(bits=bits, symmetric=True, e_min=-11, e_max=4) for bits in range(2, 9)), Format(bits=8, rule=Rule.CEIL),
    Format(bits=11), Format(bits=5, e_min=-3, e_max=-3), Format(bits=11, rule=Rule.CEIL, e_min=9),
    Format.floating(3, 0, e_min=-11, e_max=4), Format.floating(2, 0), Format.floating(2, 1), Format.floating(3, 2),
    Format.floating(4, 3, e_min=4, e_max=4), Format.floating(5, 2)]


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(3)


def numbers(block: int) -> np.ndarray:
    """Blocks uint16[blocks, block] of random patterns, close numbers and special cases.

    Special cases are powers of two, subnormals, ties, zeros, infinities and NaN.
    """
    rng = np.random.default_rng(block)
    count = 300
    raw = rng.integers(0, 1 << 16, (count, block), dtype=np.uint16)
    near = np.ldexp(rng.integers(-64, 65, (count, block)), rng.integers(-24, 9, (count, 1))).astype(np.float16)
    powers = np.ldexp(rng.choice([-1.0, 0.0, 1.0], (count, block)), rng.integers(-24, 16, (count, block)))
    tiny = rng.integers(0, 32, (count, block), dtype=np.uint16) | np.uint16(0x8000) * (rng.random((count, block)) < 0.5)
    special = np.tile(np.array([0, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0x7BFF, 1, 0x3C00], np.uint16), (block, 1)).T
    mixed = rng.choice([0x7C00, 0x7E00, 0xFC00, 0x3C01, 0xB400], (count, block)).astype(np.uint16)
    return np.concatenate([near.view(np.uint16), powers.astype(np.float16).view(np.uint16), tiny, special, raw, mixed])


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
@pytest.mark.parametrize("block", [1, 3, 16])
def test_the_quantizer_is_golden(fmt, block):
    bits = numbers(block)
    mantissas, exponents = quantizer.quantize_block(bits, fmt)
    want = np.ldexp(mantissas.astype(np.float64), (exponents - (fmt.bits - 1))[:, None])
    x = torch.from_numpy(bits.view(np.float16).astype(np.float32))
    finite = np.isfinite(bits.view(np.float16)).all(1)
    for part, wanted in ((x, want), (x[finite], want[finite])):
        whole = part.reshape(1, -1)
        assert np.array_equal(quantize_block(whole, fmt, block).numpy().astype(np.float64), wanted.reshape(1, -1))
        image = part.t()[None, :, None, :]  # [1, channels, 1, pixels]
        assert np.array_equal(quantize_block(image, fmt, block)[0, :, 0].numpy().astype(np.float64), wanted.T)


def test_the_last_block_may_be_shorter():
    fmt, x = FORMATS[2], torch.randn(2, 21, 3, 2)
    want = torch.cat([quantize_block(x[:, :16], fmt, 16), quantize_block(x[:, 16:], fmt, 5)], 1)
    assert torch.equal(quantize_block(x, fmt, 16), want)
    assert torch.equal(quantize_block(x[:, :, 0, 0].contiguous(), fmt, 16), want[:, :, 0, 0])


def test_the_gradient_by_hand():
    """Blocks of two, 3 bits, exponents up to 2, the last units 1/16 and 1/64, the others 1: above 3 clips."""
    fmt = Format(bits=3, symmetric=True, e_min=-4, e_max=2)
    x = torch.tensor([[3.9, 0.4, 3.0, -3.1, -9.0, 4.0, 0.15, 0.19, 0.06]], requires_grad=True)
    y = BlocksFunction.apply(x, fmt, 2, 1)
    assert y.tolist() == [[3.0, 0.0, 3.0, -3.0, -3.0, 3.0, 0.125, 0.1875, 0.046875]]
    y.backward(torch.arange(1.0, 10.0)[None])
    assert x.grad.tolist() == [[0.0, 2.0, 3.0, 0.0, 0.0, 0.0, 7.0, 0.0, 0.0]]
    x.grad = None
    BlocksFunction.apply(x, fmt, 2, 1, False).backward(torch.arange(1.0, 10.0)[None])
    assert x.grad.tolist() == [list(range(1, 10))]


def test_wide_mantissas_are_refused():
    with pytest.raises(ValueError, match="mantissas of 12 bits: training in PyTorch takes at most 11"):
        quantize_block(torch.zeros(1, 4), Format(bits=12), 4)


def residual():
    around = convolution(16, 24, 1, 2, relu=False)
    body = nn.Sequential(convolution(16, 24, 3, 2), convolution(24, 24, 3, relu=False))
    return nn.Sequential(convolution(1, 16, 3), Residual(body, around, True), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(24, 10))


def depthwise():
    body = nn.Sequential(convolution(16, 40, 1), convolution(40, 40, 3, groups=40), convolution(40, 16, 1, relu=False))
    return nn.Sequential(convolution(3, 16, 3, 2), Residual(body, nn.Identity(), False),
                         convolution(16, 12, 3, groups=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10))


def branches():
    pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), convolution(8, 12, 1))
    block = Branches(convolution(8, 12, 1), nn.Sequential(convolution(8, 6, 1), convolution(6, 12, 3)), pooled)
    return nn.Sequential(convolution(1, 8, 5), nn.MaxPool2d(2), block, nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(36 * 9, 20), nn.ReLU(), nn.Linear(20, 10))


NETWORKS = {"residual": (residual, 1), "depthwise": (depthwise, 3), "branches": (branches, 1)}


def small(name) -> tuple[nn.Module, torch.Tensor]:
    """A network whose batch normalisation has statistics, and binary16 images."""
    make, channels = NETWORKS[name]
    net, x = make(), torch.rand(12, channels, 12, 12).half().float()
    net.train()(x * 2)
    return net.eval(), x


def assert_golden(quantized: QuantizedNetwork, x: torch.Tensor):
    """Assert that the result of every node has golden's bits."""
    layers, sources = quantized.lower()
    with torch.no_grad():
        made = quantized.trace(x, lowered=True)
    passed, previous = {"": patterns(x.flatten(1))}, ""
    for layer in layers:
        enters = [passed[source] for source in sources.get(layer.name, (previous,))]
        passed[layer.name] = layer.run(enters, None).outputs
        assert np.array_equal(passed[layer.name], patterns(made[layer.name].flatten(1))), layer.name
        previous = layer.name
    assert (passed[previous] != passed[previous][0]).any(), "every image gives the same"


@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_golden_before_and_after_a_step(name, bits):
    net, x = small(name)
    quantized = behind_quantizers(net, x, BlockRecipe(weights_bits=bits, input_bits=min(bits + 1, 8)))
    assert_golden(quantized, x)
    optimiser = torch.optim.SGD(quantized.groups(0.1), momentum=0.9)
    before = [p.detach().clone() for p in quantized.parameters()]
    cross_entropy(quantized(x, bits % 2 == 0), torch.arange(len(x)) % 10).backward()
    optimiser.step()
    quantized.bound()
    assert all((p != q).any() == p.requires_grad for p, q in zip(quantized.parameters(), before, strict=True))
    assert_golden(quantized, x)


def test_real_numbers_and_the_machine_are_near():
    """Eight bits change results little, and binary16 between layers changes them even less."""
    net, x = small("residual")
    quantized = behind_quantizers(net, x, BlockRecipe(weights_bits=8, input_bits=8))
    with torch.no_grad():
        real, lowered, want = quantized(x), quantized(x, lowered=True), net(x)
    assert (real - want).abs().max() < 0.05 * want.abs().max()
    assert (real - lowered).abs().max() < 0.02 * want.abs().max()


def test_what_lies_in_a_block():
    """A block lies along a patch where a network takes an image of few channels, else along channels."""
    net, x = small("depthwise")
    quantized = behind_quantizers(net, x, BlockRecipe(bits={"1_body_1_0": (8, 6)}))
    layers = [layer for layer in quantized.lower()[0] if isinstance(layer, BlockConv | BlockDense)]
    assert [layer.along for layer in layers[:-1]] == [Along.PATCH] + [Along.CHANNELS] * 5
    assert [layer.exponents.shape for layer in layers[:3]] == [(16, 1, 1, 2), (40, 1, 1, 1), (40, 3, 3, 3)]
    assert {layer.name: layer.weights_format.bits for layer in layers}["1_body_1_0"] == 8
    assert layers[2].input_format.bits == 6
    assert layers[1].weights_format == Format(bits=4, symmetric=True, e_min=-11, e_max=4)
    assert all(layer.float_operator.weight.shape == layer.mantissas.shape for layer in layers
               if not isinstance(layer, BlockAverage))
    lost = quantized.arithmetic.losses["0_0"]
    assert "weights" in lost
    assert "0.0% beyond the exponents" in lost


def test_sums_that_float64_does_not_hold_are_refused():
    net = nn.Sequential(OrderedDict(wide=nn.Linear(16, 2)))
    nn.init.constant_(net.wide.weight, 15.0)
    recipe = BlockRecipe(weights_bits=8, input_bits=8, exponents=(-15, 12))
    quantized = behind_quantizers(net, torch.rand(2, 16), recipe)
    with pytest.raises(ValueError, match="layer 'wide': sums up to .* in units of 2..-44 are not exact in float64"):
        quantized(torch.rand(2, 16), lowered=True)


@pytest.mark.parametrize(("options", "message"), [
    ({"weights_bits": 9}, "mantissas of 9 bits: choose 2 to 8"), ({"bits": {"a": (4, 1)}}, "mantissas of 1 bits"),
    ({"block": 0}, "a block of 0 elements"), ({"exponents": (5, 4)}, "exponents lie in -15..16 and rise, not 5..4")])
def test_wrong_recipes(options, message):
    with pytest.raises(ValueError, match=message):
        BlockRecipe(**options)


def test_a_recipe_in_words():
    text = str(BlockRecipe(bits={"first": (8, 6)}))
    assert text == ("block floating point in blocks of 16, mantissas of 4 bits for weights and 4 for inputs, exponents "
                    "-11..4, first 8 and 6 bits")
    text = str(BlockRecipe(exponents=(-7, 0), input_exponents=(-5, 2)))
    assert text.endswith("exponents -7..0 for weights and -5..2 for inputs")


def test_a_model(tmp_path, monkeypatch):
    """The command trains a model, and golden gives the predictions that it recorded."""
    few = dataset.load("fashion-mnist").first(60)
    monkeypatch.setattr(data, "fashion_mnist", lambda folder: few)
    monkeypatch.setattr(dataset, "load", lambda name: few)
    path = tmp_path / "model.safetensors"
    words = ["train", "image", "resnet", "-o", path, "--arithmetic", "bfp", "--weights-bits", 3, "--layer", "0_0=8,8",
             "--epochs", "1,1,1", "--samples", 60]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    made = load_model(path)
    assert made.layers[0].weights_format.bits == 8
    assert made.layers[1].weights_format == Format(bits=3, symmetric=True, e_min=-11, e_max=4)
    assert "block floating point in blocks of 16, mantissas of 3 bits for weights" in made.provenance.method
    right = network.predict(made, few.inputs) == few.labels
    assert right.mean() == made.provenance.golden_accuracy


@pytest.mark.parametrize(("words", "message"), [
    (["--arithmetic", "bfp", "--rows", "2"], "bfp finds its own exponents"),
    (["--arithmetic", "bfp", "--weights-bits", "16"], "mantissas of 16 bits: choose 2 to 8"),
    (["--block", "8"], "--block is for --arithmetic bfp")])
def test_wrong_options(words, message):
    result = CliRunner().invoke(app, ["train", "image", *words])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
