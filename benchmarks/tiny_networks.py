"""The four reference architectures of MLPerf Tiny in FP32, with random weights from a seed.

Convolutions have the padding "same" of TensorFlow, with which an image of s pixels and a stride t gives ceil(s / t)
pixels. An odd number of rows or columns of padding is one larger at the end. The softmax is left out, since it does not
change the order of classes.

Source: https://github.com/mlcommons/tiny, benchmark/training; rules 1.0 to 1.3, whose ResNet-8 begins with 16 channels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import nn

#: Number of samples, and of batches of as many, from which batch normalisation takes its statistics.
SAMPLES, BATCHES = 16, 4
#: Added to a variance by batch normalisation; the value of Keras.
EPSILON = 1e-3


def same(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Padding before and after `size` pixels, with which windows have ceil(size / stride) positions."""
    padding = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    return padding // 2, padding - padding // 2


class Convolutions(nn.Module):
    """A chain of convolutions, each with batch normalisation, that knows the shape of its result.

    Args:
        shape: Channels, rows and columns of the input.

    Attributes:
        shape:  Channels, rows and columns of the result of the layers so far.
        layers: The layers so far, by name.
    """

    def __init__(self, shape: tuple[int, int, int]):
        super().__init__()
        self.shape, self.layers = shape, nn.Sequential()

    def forward(self, x):
        return self.layers(x)

    def convolution(
        self, name: str, outputs: int, kernel: tuple[int, int], stride: int = 1, *, groups: int = 1, norm: bool = True,
        relu: bool = True,
    ) -> Self:
        """Add a convolution with a bias, and a relu if `relu` is true; returns the chain itself."""
        channels, *sizes = self.shape
        (top, bottom), (left, right) = (same(size, k, stride) for size, k in zip(sizes, kernel, strict=True))
        padding = (top, left)
        if padding != (bottom, right):
            self.layers.add_module(f"{name}_border", nn.ZeroPad2d((left, right, top, bottom)))
            padding = 0
        self.layers.add_module(name, nn.Conv2d(channels, outputs, kernel, stride, padding, groups=groups))
        if norm:
            self.layers.add_module(f"{name}_norm", nn.BatchNorm2d(outputs, eps=EPSILON))
        if relu:
            self.layers.add_module(f"{name}_relu", nn.ReLU())
        self.shape = outputs, *(-(-size // stride) for size in sizes)
        return self

    def separable(self, number: int, outputs: int, stride: int = 1) -> Self:
        """Add a depthwise convolution of 3 x 3 and a point-wise one; returns the chain itself."""
        channels = self.shape[0]
        self.convolution(f"depthwise{number}", channels, (3, 3), stride, groups=channels)
        return self.convolution(f"pointwise{number}", outputs, (1, 1))

    def residual(self, name: str, outputs: int, stride: int = 1) -> Self:
        """Add two convolutions with a way around them; returns the chain itself."""
        body, around = Convolutions(self.shape), Convolutions(self.shape)
        body.convolution("conv1", outputs, (3, 3), stride).convolution("conv2", outputs, (3, 3), relu=False)
        if body.shape != self.shape:
            around.convolution("conv", outputs, (1, 1), stride, norm=False, relu=False)
        self.layers.add_module(name, Sum(body.layers, around.layers))
        self.shape = body.shape
        return self

    def dropout(self, name: str, share: float) -> Self:
        """Add a dropout; returns the chain itself."""
        self.layers.add_module(name, nn.Dropout(share))
        return self

    def classes(self, count: int, window: tuple[int, int] | None = None) -> nn.Sequential:
        """The network that ends with an average of the whole image or of its first window, and a dense layer."""
        self.layers.add_module("average", nn.AvgPool2d(window) if window else nn.AdaptiveAvgPool2d(1))
        self.layers.add_module("flat", nn.Flatten())
        self.layers.add_module("dense", nn.Linear(self.shape[0], count))
        return self.layers


class Sum(nn.Module):
    """The relu of the sum of two branches with the same input.

    Args:
        body, around: Modules of the branches.
    """

    def __init__(self, body: nn.Module, around: nn.Module):
        super().__init__()
        self.body, self.around, self.relu = body, around, nn.ReLU()

    def forward(self, x):
        return self.relu(self.around(x) + self.body(x))


def resnet8() -> nn.Sequential:
    """ResNet-8 for images of 3 x 32 x 32 in 10 classes."""
    net = Convolutions((3, 32, 32)).convolution("conv", 16, (3, 3)).residual("stack1", 16)
    return net.residual("stack2", 32, 2).residual("stack3", 64, 2).classes(10)


def ds_cnn() -> nn.Sequential:
    """DS-CNN for 49 spectra of 10 coefficients in 12 classes. Its average leaves out the last row of 25 x 5."""
    net = Convolutions((1, 49, 10)).convolution("conv", 64, (10, 4), 2).dropout("dropout1", 0.2)
    for number in range(1, 5):
        net.separable(number, 64)
    return net.dropout("dropout2", 0.4).classes(12, (24, 5))


def mobilenet() -> nn.Sequential:
    """MobileNetV1 of width 0.25 for images of 3 x 96 x 96 in 2 classes."""
    net = Convolutions((3, 96, 96)).convolution("conv", 8, (3, 3), 2)
    steps = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1))
    for number, (outputs, stride) in enumerate(steps, 1):
        net.separable(number, outputs, stride)
    return net.classes(2)


def autoencoder() -> nn.Sequential:
    """The autoencoder of 640 inputs, five spectra of 128 coefficients."""
    sizes, net = (640, 128, 128, 128, 128, 8, 128, 128, 128, 128), nn.Sequential()
    for number, (inputs, outputs) in enumerate(zip(sizes, sizes[1:], strict=False), 1):
        net.add_module(f"dense{number}", nn.Linear(inputs, outputs))
        net.add_module(f"norm{number}", nn.BatchNorm1d(outputs, eps=EPSILON))
        net.add_module(f"relu{number}", nn.ReLU())
    net.add_module(f"dense{len(sizes)}", nn.Linear(sizes[-1], sizes[0]))
    return net


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """A reference architecture.

    Attributes:
        title: What people call it.
        build: Makes the network with random weights.
        shape: Shape of one input.
    """

    title: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]


REFERENCES = {
    "resnet8": Reference(title="ResNet-8", build=resnet8, shape=(3, 32, 32)),
    "ds-cnn": Reference(title="DS-CNN", build=ds_cnn, shape=(1, 49, 10)),
    "mobilenet": Reference(title="MobileNetV1-0.25", build=mobilenet, shape=(3, 96, 96)),
    "autoencoder": Reference(title="autoencoder", build=autoencoder, shape=(640,)),
}


def samples(shape: tuple[int, ...], count: int, seed: int) -> torch.Tensor:
    """float32[count, *shape]: numbers of 0 to 1 from a seed, each rounded to binary16, whose neighbours are alike.

    Each is a rough grid of random numbers, drawn smoothly, and noise, so that statistics differ from channel to channel
    as those of real data do.
    """
    generator = torch.Generator().manual_seed(seed)
    channels, *sizes = shape if len(shape) == 3 else (1, *shape)
    rough = torch.rand(count, channels, *(max(2, size // 8) for size in sizes), generator=generator)
    mode = "bilinear" if len(sizes) == 2 else "linear"
    smooth = nn.functional.interpolate(rough, size=tuple(sizes), mode=mode, align_corners=True)
    noisy = smooth + 0.1 * torch.randn(smooth.shape, generator=generator)
    return noisy.clamp(0, 1).half().float().view(count, *shape)


def settled(build: Callable[[], nn.Module], shape: tuple[int, ...], seed: int = 0) -> nn.Module:
    """A network in evaluation mode, with random weights and with statistics of seeded batches.

    Scale and shift of batch normalisation are random, too, so that folding it changes every weight.

    Args:
        build: Makes the network.
        shape: Shape of one input.
        seed:  Seed of weights and batches.
    """
    torch.manual_seed(seed)
    net = build().train()
    with torch.no_grad():
        for norm in (module for module in net.modules() if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)):
            norm.weight.uniform_(0.7, 1.3)
            norm.bias.normal_(0, 0.2)
            norm.momentum = None  # the mean over all batches
        for batch in range(BATCHES):
            net(samples(shape, SAMPLES, seed + 1 + batch))
    return net.eval()


def network(name: str, seed: int = 0) -> nn.Module:
    """A reference architecture, as `settled` makes it."""
    return settled(REFERENCES[name].build, REFERENCES[name].shape, seed)
