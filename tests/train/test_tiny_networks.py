"""The reference architectures of MLPerf Tiny: sizes as published, and weights from a seed."""

from math import prod

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")

from concord.benchmarks import tiny_networks
from concord.benchmarks.tiny_networks import REFERENCES
from torch import nn

#: Numbers of parameters that Keras counts, running statistics among them, of products, and of outputs.
PUBLISHED = {
    "resnet8": (78_666, 12_501_632, 10),
    "ds-cnn": (24_908, 2_656_768, 12),
    "mobilenet": (221_794, 7_489_664, 2),
    "autoencoder": (269_992, 264_192, 640),
}


def products(net: nn.Module, shape: tuple[int, ...]) -> int:
    """Number of products of weights and inputs for one input."""
    found = []

    def count(layer, _, made):
        found.append(made[0].numel() * prod(layer.weight.shape[1:]))

    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(count)
    with torch.no_grad():
        net(torch.zeros(1, *shape))
    return sum(found)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", REFERENCES)
def test_sizes_are_those_of_the_reference(name):
    parameters, expected, outputs = PUBLISHED[name]
    net, shape = tiny_networks.network(name), REFERENCES[name].shape
    statistics = [value for key, value in net.named_buffers() if key.endswith(("mean", "var"))]
    assert sum(value.numel() for value in (*net.parameters(), *statistics)) == parameters
    assert products(net, shape) == expected
    with torch.no_grad():
        assert net(tiny_networks.samples(shape, 2, 0)).shape == (2, outputs)


@pytest.mark.parametrize(("size", "kernel", "stride", "padding"), [
    (32, 3, 1, (1, 1)), (32, 3, 2, (0, 1)), (33, 3, 2, (1, 1)), (49, 10, 2, (4, 5)), (10, 4, 2, (1, 1)),
    (32, 1, 2, (0, 0))])
def test_padding_is_that_of_tensorflow(size, kernel, stride, padding):
    assert tiny_networks.same(size, kernel, stride) == padding


def test_weights_and_samples_come_from_a_seed():
    first, again, other = (tiny_networks.network("autoencoder", seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["dense1.weight"], other["dense1.weight"])
    drawn = [tiny_networks.samples((3, 8, 8), 4, seed) for seed in (1, 1, 2)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert torch.equal(drawn[0], drawn[0].half().float())


def test_normalisation_has_the_statistics_of_its_inputs():
    net = tiny_networks.network("resnet8")
    norm = net.conv_norm
    with torch.no_grad():
        made = net.conv(tiny_networks.samples((3, 32, 32), 256, 9))
    assert torch.allclose(made.mean((0, 2, 3)), norm.running_mean, atol=0.05)
    assert torch.allclose(made.var((0, 2, 3)), norm.running_var, rtol=0.2)
    assert norm.running_var.max() > 2 * norm.running_var.min()
