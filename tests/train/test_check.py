"""Networks and recipes that cannot be trained or quantised are refused before slow work; users' own networks."""

import sys

import pytest
from concord.net.quantize.recipe import ActivationTraining, Methods, Recipe, WeightMethod, WeightTraining

torch = pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
from concord.net.quantize.plan import Unsupported
from concord.train.lib import networks
from concord.train.lib.networks import build, perceptron
from concord.train.network.quantized_network import check
from concord.train.runs import image
from safetensors.torch import load_file, save_file
from torch import nn

NETS = """
from torch import nn

def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 12), nn.ReLU(), nn.Linear(12, 10))

class Curved(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.curve, self.last = nn.Linear(28, 3), nn.GELU(), nn.Linear(3, 10)
    def forward(self, x):
        return self.last(self.curve(self.first(x)).log())

def other():
    return nn.Sequential(nn.Flatten(), nn.Linear(100, 10))

def few():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 3))

class Broadcast(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.mean = nn.Conv2d(1, 10, 28), nn.AdaptiveAvgPool2d(1)
        self.wide = nn.Conv2d(1, 10, 3)
    def forward(self, x):
        return self.mean(self.wide(x) + self.conv(x)).flatten(1)

def lines():
    return nn.Sequential(nn.Linear(28, 2), nn.ReLU(), nn.Conv2d(1, 10, (28, 2)), nn.Flatten())

def fails():
    raise KeyError("gone")

def number():
    return 3

size = 4
"""


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    """A working folder with a module of networks."""
    (tmp_path / "own_nets.py").write_text(NETS)
    (tmp_path / "own_broken.py").write_text("import nothing_of_that_name")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("own_nets", None)


@pytest.fixture
def nothing_slow(monkeypatch):
    """Fail the test if data are read or training begins."""
    def reached(*_, **__):
        raise AssertionError("too late")

    monkeypatch.setattr(image.Images, "load", reached)
    monkeypatch.setattr(image, "trained", reached)


@pytest.mark.parametrize(("network", "sentence"), [
    ("none", "no network 'none': choose one of mlp, resnet, .*, inception-small, or name your own as "),
    ("own_nets:", "there is no network 'own_nets:'"),
    ("own_nets:nobody", "module 'own_nets' has no function or class 'nobody'"),
    ("own_nets:size", "module 'own_nets' has no function or class 'size'"),
    ("own_none:build", "module 'own_none' cannot be imported: No module named 'own_none'; it is looked for in /"),
    ("own_broken:build", "module 'own_broken' cannot be imported: No module named 'nothing_of_that_name'"),
    ("own_nets:fails", r"calling it fails with KeyError \('gone'\); it is called without arguments"),
    ("own_nets:number", "it returns int, but a torch.nn.Module is needed"),
    ("own_nets:other", r"the network does not take inputs of shape \[1, 28, 28\]: mat1 and mat2 shapes"),
    ("own_nets:few", r"answers an input with \[3\], but one vector of 10 classes is needed"),
    ("own_nets:Broadcast", r"'add': it adds \[10, 26, 26\] and \[10, 1, 1\]; their shapes must be equal"),
    ("own_nets:lines", r"'0': a dense layer of 28 inputs sees samples of \[1, 28, 28\]; flatten them"),
    ("own_nets:Curved", r"'log': there is no quantised form"),
])
def test_networks_that_cannot_be_trained(network, sentence, nothing_slow, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        image.train_image(tmp_path / "m", network=network)


DOREFA, NAMED = WeightTraining.DOREFA, {"bits": {"1": (4, 1)}}


@pytest.mark.parametrize(("recipe", "sentence"), [
    ({"bits": {"7": (8, 8)}}, "there is no layer '7' to give bits to; the network has 1, 3, 5"),
    ({"weights_bits": 24}, "layer '1': weights of 24 bits by wrpn multiply as integers of 24, but a machine's"),
    ({"weights_bits": 16, "weights": DOREFA}, "layer '1': weights of 16 bits by dorefa multiply as integers of 17"),
    ({"input_bits": 24}, "layer '1': inputs of 24 bits, but a machine's operands have 2 to 16: choose another width"),
    ({"input_bits": 1}, "layer '1': inputs of 1 bits"),
    (NAMED, "layer '1': inputs of 1 bits"),
])
def test_recipes_that_cannot_be_done(recipe, sentence, nothing_slow, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        image.train_image(tmp_path / "m", network="mlp", recipe=Recipe(**recipe))


def test_what_can_be_done_passes_and_leaves_the_network():
    net = perceptron((16,)).train()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    check(net, (1, 28, 28), Recipe(weights_bits=1, weights=DOREFA), 10)
    check(net, (1, 28, 28), Recipe(weights_bits=16, methods=Methods(weights=WeightMethod.UNIFORM, rows=0)))
    uniform = Methods(weights=WeightMethod.UNIFORM)
    check(net, (784,), Recipe(weights_bits=24, input_bits=24, methods=uniform), machine=False)
    check(net, (784,), Recipe(weights_bits=None, input_bits=1, activations=ActivationTraining.PACT), machine=False)
    assert net.training
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    with pytest.raises(Unsupported):
        check(nn.Sequential(nn.Linear(4, 4), nn.Softmax(1)), (4,), Recipe())


def test_a_network_of_ones_own_is_trained(tmp_path):
    net = build("own_nets:build", 3)
    assert torch.equal(net[1].weight, build("own_nets:build", 3)[1].weight)
    assert not torch.equal(net[1].weight, build("own_nets:build", 4)[1].weight)
    images = image.Images(
        torch.rand(20, 1, 28, 28), torch.arange(20) % 10, torch.rand(4, 1, 28, 28), torch.arange(4))
    made = image.trained("own_nets:build", images, 3, 1, None)
    assert len(made) == 4


def test_parameters_travel_as_safetensors(tmp_path):
    net, other = (build("resnet", seed) for seed in (0, 1))
    networks.save(net, tmp_path / "deep" / "net.safetensors")
    networks.load(other, tmp_path / "deep" / "net.safetensors")
    assert all(torch.equal(net.state_dict()[name], tensor) for name, tensor in other.state_dict().items())
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["net.safetensors"]


def test_parameters_that_are_refused(tmp_path):
    net, path = build("own_nets:build"), tmp_path / "net.safetensors"

    def refused(change=lambda tensors: None) -> str:
        networks.save(net, path)
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path)
        with pytest.raises(ValueError, match="net.safetensors: it is of another network") as error:
            networks.load(build("own_nets:build"), path)
        return str(error.value)

    assert refused(lambda tensors: tensors.pop("3.bias")).endswith("it lacks 3.bias")
    assert refused(lambda tensors: tensors.update(more=torch.zeros(1))).endswith("the network has no more")
    assert "1.weight is [12, 3], but the network has [12, 784]" in refused(
        lambda tensors: tensors.update({"1.weight": torch.zeros(12, 3)}))
    assert "3.bias holds torch.int64" in refused(lambda tensors: tensors.update({"3.bias": torch.zeros(10).long()}))
    assert "3.bias has an infinity" in refused(lambda tensors: tensors["3.bias"].fill_(torch.inf))
    path.write_bytes(b"no tensors")
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        networks.load(net, path)
    with pytest.raises(ValueError, match="there is no such file; `nnp train image --fp32 FILE` writes one"):
        networks.load(net, tmp_path / "none.pt")
    (tmp_path / "net.pth").write_bytes(b"cos\nsystem\n(S'touch unpickled'\ntR.")
    with pytest.raises(ValueError, match=r"reading a pickle runs whatever program .* convert it: python -c .*net.pth"):
        networks.load(net, tmp_path / "net.pth")
    assert not (tmp_path / "unpickled").exists()
