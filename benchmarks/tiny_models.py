"""The reference architectures of MLPerf Tiny, and single convolutions, as quantised models in 8 bits.

Post-training quantisation by `train.runs.quantize` makes them from random weights and random calibration sets, each
from a seed, and checks golden arithmetic against PyTorch on the calibration set.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from concord.benchmarks.tiny_networks import REFERENCES, Convolutions, network, samples, settled
from concord.net.model import Model
from concord.net.quantize.recipe import Recipe
from concord.train.lib.export import patterns
from concord.train.runs.quantize import of_module, quantize, write
from torch import nn

#: Operands of the presets for images, and of `speech`.
RECIPE = Recipe(weights_bits=8, input_bits=8, symmetric=(True, True))
CALIBRATION, SEED = 32, 1000  #: Number and seed of the samples for calibration.
TEST_SEED = 2000  #: Seed of the samples that are run.
MEASURED = "measured"  #: Name of the layer whose cycles count in the model of a single convolution.
COMMAND = "nox -s bench_images"


@dataclass(frozen=True, kw_only=True, slots=True)
class Single:
    """A convolution with stride 1 that keeps the size of its image.

    Attributes:
        kernel:   Rows and columns of the kernel.
        channels: Channels of the input and of the result.
        size:     Rows and columns of the image.
    """

    kernel: int
    channels: int
    size: int

    @property
    def title(self) -> str:
        """Name in tables."""
        return f"{self.kernel} x {self.kernel}, {self.channels} to {self.channels}, {self.size} x {self.size}"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the input of its model."""
        return 16, self.size, self.size

    def network(self) -> nn.Module:
        """The convolution between one that makes its input, and one that reduces its result to one pixel."""
        net = Convolutions(self.shape).convolution("before", self.channels, (1, 1))
        net.convolution(MEASURED, self.channels, (self.kernel, self.kernel))
        return net.convolution("after", 16, (1, 1), self.size).layers


SINGLES = {
    "conv3x3-64": Single(kernel=3, channels=64, size=16),
    "conv1x1-64": Single(kernel=1, channels=64, size=16),
    "conv3x3-16": Single(kernel=3, channels=16, size=32),
}
MODELS = (*REFERENCES, *SINGLES)


def shape(name: str) -> tuple[int, ...]:
    """Shape of one input of a model."""
    return (REFERENCES.get(name) or SINGLES[name]).shape


def title(name: str) -> str:
    """Name of a model in tables."""
    return (REFERENCES.get(name) or SINGLES[name]).title


def fp32(name: str) -> nn.Module:
    """The network of a model before quantisation."""
    return network(name) if name in REFERENCES else settled(SINGLES[name].network, SINGLES[name].shape)


def quantized(name: str, folder: Path) -> Model:
    """Quantise a network, and write its model file into `folder`.

    Raises:
        Unsupported: an operation of the network cannot be quantised.
    """
    net, inputs = fp32(name), samples(shape(name), CALIBRATION, SEED)
    folder.mkdir(parents=True, exist_ok=True)
    source = of_module(name, net, inputs)
    made, _ = quantize(source, RECIPE)
    return write(folder / f"{name}.safetensors", source, made, RECIPE, COMMAND)


def run_inputs(name: str, count: int) -> np.ndarray:
    """uint16[count, inputs], inputs that are not in the calibration set."""
    return patterns(samples(shape(name), count, TEST_SEED).flatten(1))
