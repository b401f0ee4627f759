"""Small image classifiers for 28 x 28 pixels in FP32, by name, with those of a user, and files of their parameters.

Parameters are safetensors with the names that PyTorch gives them. Nothing is unpickled.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from concord.lib import files
from concord.lib.names import callable_of, called
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as save_tensors
from torch import nn

#: Shape of an input.
SHAPE = (1, 28, 28)
CLASSES = 10


def convolution(
    inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1, relu: bool = True
) -> nn.Sequential:
    """A convolution, its batch normalisation, and a relu if `relu` is true."""
    layers = [nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *[nn.ReLU()] * relu)


class Residual(nn.Module):
    """The sum of two branches with the same input.

    Args:
        body:   Module of the first branch.
        around: Module of the second branch, which may be nn.Identity().
        relu:   Whether a relu follows the sum.
    """

    def __init__(self, body: nn.Module, around: nn.Module, relu: bool):
        super().__init__()
        self.body, self.around = body, around
        self.relu = nn.ReLU() if relu else nn.Identity()

    def forward(self, x):
        return self.relu(self.body(x) + self.around(x))


class Branches(nn.Module):
    """The concatenation of several branches with the same input, along the channels."""

    def __init__(self, *branches: nn.Module):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


def perceptron(hidden: Sequence[int] = (128, 64)) -> nn.Sequential:
    """Dense layers with relus between them; 109,386 parameters."""
    sizes = (784, *hidden)
    layers = [layer for i, o in zip(sizes, sizes[1:], strict=False) for layer in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(sizes[-1], CLASSES))


def resnet() -> nn.Sequential:
    """Three blocks of two convolutions with a way around them; 77,754 parameters."""
    return nn.Sequential(
        convolution(1, 16, 3), _residual(16, 16, 1), _residual(16, 32, 2), _residual(32, 64, 2), _head(64))


def small_resnet() -> nn.Sequential:
    """Three blocks with ways around them on a quarter of the pixels; 24,666 parameters."""
    return nn.Sequential(
        convolution(1, 16, 3, 2), _residual(16, 16, 2), _residual(16, 16, 1), _residual(16, 32, 2), _head(32))


def _residual(inputs: int, outputs: int, stride: int) -> Residual:
    """Two convolutions with a way around them, which is a convolution where the shape changes."""
    body = nn.Sequential(convolution(inputs, outputs, 3, stride), convolution(outputs, outputs, 3, relu=False))
    around = nn.Identity() if stride == 1 else convolution(inputs, outputs, 1, stride, relu=False)
    return Residual(body, around, relu=True)


def mobilenet() -> nn.Sequential:
    """Inverted bottlenecks: wide and depthwise inside, narrow and linear between; 34,682 parameters."""
    return nn.Sequential(
        convolution(1, 16, 3, 2), _bottleneck(16, 16, 1), _bottleneck(16, 24, 2), _bottleneck(24, 24, 1),
        _bottleneck(24, 32, 2), _bottleneck(32, 32, 1), convolution(32, 128, 1), _head(128))


def small_mobilenet() -> nn.Sequential:
    """Inverted bottlenecks on a quarter of the pixels; 18,810 parameters."""
    return nn.Sequential(
        convolution(1, 16, 3, 2), _bottleneck(16, 16, 2), _bottleneck(16, 16, 1), _bottleneck(16, 24, 2),
        _bottleneck(24, 24, 1), convolution(24, 96, 1), _head(96))


def _bottleneck(inputs: int, outputs: int, stride: int, wider: int = 4) -> nn.Module:
    """An inverted bottleneck, with a way around it where the shape stays the same."""
    wide = wider * inputs
    body = nn.Sequential(convolution(inputs, wide, 1), convolution(wide, wide, 3, stride, groups=wide),
                         convolution(wide, outputs, 1, relu=False))
    return Residual(body, nn.Identity(), relu=False) if (inputs, stride) == (outputs, 1) else body


def inception() -> nn.Sequential:
    """Branches of several sizes side by side; 31,338 parameters."""
    return nn.Sequential(
        convolution(1, 16, 3), nn.MaxPool2d(2), _branches(16, 16), nn.MaxPool2d(2), _branches(64, 24), _head(96))


def small_inception() -> nn.Sequential:
    """Branches side by side on a quarter of the pixels, with few channels between them; 31,418 parameters."""
    return nn.Sequential(
        convolution(1, 16, 3, 2), convolution(16, 16, 3, 2), _branches(16, 16), convolution(64, 24, 1),
        _branches(24, 24), _head(96))


def _branches(inputs: int, each: int) -> Branches:
    """Convolutions of three sizes and a maximum side by side, each with as many channels."""
    pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), convolution(inputs, each, 1))
    twice = nn.Sequential(convolution(inputs, each, 1), convolution(each, each, 3), convolution(each, each, 3))
    once = nn.Sequential(convolution(inputs, each, 1), convolution(each, each, 3))
    return Branches(convolution(inputs, each, 1), once, twice, pooled)


def _head(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "mlp": perceptron, "resnet": resnet, "resnet-small": small_resnet, "mobilenet": mobilenet,
    "mobilenet-small": small_mobilenet, "inception": inception, "inception-small": small_inception}


def build(name: str, seed: int = 0) -> nn.Module:
    """Builds the untrained FP32 network of a name.

    Args:
        name: A name in `networks.NETWORKS`, or module:callable, where the callable takes no arguments and returns an
            nn.Module. The current folder is searched first.
        seed: Seed of the random weights.

    Raises:
        ValueError: there is no such network, or the callable fails.
    """
    made = NETWORKS.get(name) or _own(name)
    torch.manual_seed(seed)
    net = called(f"network {name!r}", made)
    if not isinstance(net, nn.Module):
        raise ValueError(f"network {name!r}: it returns {type(net).__name__}, but a torch.nn.Module is needed")
    return net


def _own(name: str):
    """The callable that a name of the form module:callable stands for.

    Raises:
        ValueError: there is no such module or callable.
    """
    module, _, member = name.partition(":")
    if not (module and member):
        raise ValueError(f"there is no network {name!r}: choose one of {', '.join(NETWORKS)}, or name your own as "
                         "module:callable, such as my_nets:build")
    return callable_of(f"network {name!r}", name, Path.cwd())


#: Endings of the names of pickled files.
PICKLED = (".pt", ".pth", ".pkl", ".bin", ".ckpt")


def save(net: nn.Module, path: Path):
    """Write the parameters of a network; the file appears whole or not at all."""
    files.write(path, save_tensors({name: tensor.contiguous() for name, tensor in net.state_dict().items()}))


def load(net: nn.Module, path: Path):
    """Load the parameters of a network from a file.

    Raises:
        ValueError: the file is missing, pickled or damaged, or is of another network.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file; `nnp train image --fp32 FILE` writes one")
    if path.suffix in PICKLED:
        raise ValueError(
            f"{path}: reading a pickle runs whatever program is in it, so only safetensors are read; convert it: "
            "python -c \"import torch, safetensors.torch as s; s.save_file(torch.load('" + path.name +
            f"', weights_only=True), '{path.stem}.safetensors')\"")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: not a whole safetensors file ({error}); write the parameters again with "
                         "safetensors.torch.save_file(net.state_dict(), path)") from error
    if wrong := _misfits(net.state_dict(), tensors):
        raise ValueError(f"{path}: it is of another network: {wrong}")
    net.load_state_dict(tensors)


def _misfits(wanted: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> str:
    """The first difference between the parameters of a network and those of a file; empty if there is none."""
    for name in [*wanted, *found]:
        if name not in found:
            return f"it lacks {name}"
        if name not in wanted:
            return f"the network has no {name}"
        if wanted[name].shape != found[name].shape:
            return f"{name} is {list(found[name].shape)}, but the network has {list(wanted[name].shape)}"
        if found[name].is_floating_point() != wanted[name].is_floating_point():
            return f"{name} holds {found[name].dtype}, but the network has {wanted[name].dtype}"
        if not torch.isfinite(found[name]).all():
            return f"{name} has an infinity or no number; train it again"
    return ""
