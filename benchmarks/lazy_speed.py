"""Time of a training step under the lazy update, as a multiple of that in FP32, in one interleaved run.

If QPyTorch is installed, its block floating point is timed as well: 8-bit weights, activations and gradients, rounded
to nearest, as in its own examples.
"""

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import torch
from concord.benchmarks import peers
from concord.benchmarks.interleaved import columns, rows
from concord.golden.lazy.tensor_network import AveragePool, Conv, Dense, Relu, Residual
from concord.golden.lazy.tensor_training import Rates
from concord.train.bfp import tensor_network
from concord.train.bfp.parameters import UpdateRule
from concord.train.lib.fit import cross_entropy
from rich.console import Console
from torch import nn

ROUNDS = 15


def block(inputs: int, outputs: int, stride: int) -> tuple:
    """A residual block: two convolutions and a shortcut."""
    shortcut = (Conv(inputs, outputs, 1, stride),) if stride > 1 else ()
    body = Conv(inputs, outputs, 3, stride, 1), Relu(), Conv(outputs, outputs, 3, 1, 1)
    return Residual(body, shortcut), Relu()


RESNET = (Conv(1, 16, 3, 1, 1), Relu(), *block(16, 16, 1), *block(16, 32, 2), *block(32, 64, 2), AveragePool(7, 7),
          Dense(64, 10))
MLP = (Dense(784, 128), Relu(), Dense(128, 64), Relu(), Dense(64, 10))
NETWORKS = {"ResNet-style": (RESNET, (64, 1, 28, 28)), "MLP": (MLP, (128, 784))}


def float_step(net: nn.Module, x: torch.Tensor, labels: np.ndarray) -> Callable[[], None]:
    """A function that makes one step of SGD in FP32."""
    optimiser, targets = torch.optim.SGD(net.parameters(), lr=0.02), torch.from_numpy(labels)

    def step():
        optimiser.zero_grad()
        cross_entropy(net(x), targets).backward()
        optimiser.step()

    return step


def contestants(layers, shape, rng) -> dict[str, Callable[[], None]]:
    """For each arithmetic, a function that makes one training step."""
    values, labels = rng.random(shape, np.float32), rng.integers(0, 10, shape[0])
    x, exact = torch.from_numpy(values), tensor_network.inputs(values)
    lazy = tensor_network.network(layers, UpdateRule.LAZY, Rates(learning_rate=0.02))
    steps = {"FP32": float_step(tensor_network.float_network(layers), x, labels),
             "BFP, lazy update": lambda: lazy.step(exact, labels)}
    if len(shape) == 4:
        last = tensor_network.float_network(layers).to(memory_format=torch.channels_last)
        steps["FP32, channels last"] = float_step(last, x.contiguous(memory_format=torch.channels_last), labels)
    with suppress(ImportError):
        steps["QPyTorch BFP8"] = float_step(peers.qpytorch(tensor_network.float_network(layers)), x, labels)
    return steps


def report(console: Console):
    """Measure and print a table."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    table = columns("network", "arithmetic", "Training step, one thread")
    for name, (layers, shape) in NETWORKS.items():
        rows(table, name, contestants(layers, shape, rng), ROUNDS)
    console.print(table)
