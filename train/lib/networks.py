"""Small image classifiers for 28 x 28 pixels in FP32, after the networks whose names they have."""

from collections.abc import Callable, Sequence

import torch
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
