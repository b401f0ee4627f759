"""Small trained networks in ONNX with their data, for commands that show what the source documents ask for.

Each is trained by PyTorch within seconds on data that a seed draws, so that it is the same on every machine.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

STEPS, FEATURES, CLASSES, NODES = 12, 8, 4, 9
SAMPLES, UPDATES = 400, 150


class SmallRecurrent(nn.Module):
    """An LSTM or a GRU with a linear layer behind the last time step, or at each of them."""

    def __init__(self, kind: type[nn.Module], every: bool = False):
        super().__init__()
        self.hidden, self.head, self.every = kind(FEATURES, 16, batch_first=True), nn.Linear(16, CLASSES), every

    def forward(self, x):
        found = self.hidden(x)[0]
        return self.head(found if self.every else found[:, -1])


class SmallGraphNetwork(nn.Module):
    """Two graph convolutions of a ring of nodes, and a dense layer."""

    def __init__(self):
        super().__init__()
        near = torch.eye(NODES) + torch.eye(NODES).roll(1, 0) + torch.eye(NODES).roll(-1, 0)
        self.register_buffer("graph", near / 3)
        self.one, self.two, self.head = nn.Linear(FEATURES, 6), nn.Linear(6, 6), nn.Linear(6 * NODES, CLASSES)

    def forward(self, x):
        x = torch.relu(self.graph @ self.one(x))
        return self.head(torch.relu(self.graph @ self.two(x)).flatten(1))


class SmallAttention(nn.Module):
    """A softmax of one layer chooses among the results of another one, which are normalised."""

    def __init__(self):
        super().__init__()
        self.keys, self.values, self.norm = nn.Linear(FEATURES, 16), nn.Linear(FEATURES, 16), nn.LayerNorm(16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.head(self.norm(torch.softmax(self.keys(x), -1) * self.values(x)))


def _images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, CLASSES))


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, CLASSES))


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceNetwork:
    """A network, the shape of a sample, and from samples the numbers whose signs are the bits of their classes."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    bits: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def _last(x):
    return x[:, -4:, 0].sum(1), x[:, -4:, 1].sum(1)


NETWORKS = {
    "mlp": SourceNetwork(make=_perceptron, shape=(FEATURES,), bits=lambda x: (x[:, 0] + x[:, 1], x[:, 2])),
    "attention": SourceNetwork(make=SmallAttention, shape=(FEATURES,), bits=lambda x: (x[:, 0] + x[:, 1], x[:, 2])),
    "cnn": SourceNetwork(make=_images, shape=(2, 8, 8), bits=lambda x: (x.sum((1, 2, 3)), x[:, 0].sum((1, 2)))),
    "lstm": SourceNetwork(make=lambda: SmallRecurrent(nn.LSTM), shape=(STEPS, FEATURES), bits=_last),
    "gru": SourceNetwork(make=lambda: SmallRecurrent(nn.GRU), shape=(STEPS, FEATURES), bits=_last),
    "tags": SourceNetwork(make=lambda: SmallRecurrent(nn.LSTM, every=True), shape=(STEPS, FEATURES),
                         bits=lambda x: (x.cumsum(1)[..., 0], x[..., 1])),
    "gcn": SourceNetwork(make=SmallGraphNetwork, shape=(NODES, FEATURES),
                        bits=lambda x: (x[:, :, 0].sum(1), x[:, :4, 1].sum(1))),
}


def write(folder: Path):
    """Write NAME.onnx and NAME.npz of every network that is not there yet."""
    for name, network in NETWORKS.items():
        if not (folder / f"{name}.npz").exists():
            _write(folder, name, network)


def _write(folder: Path, name: str, network: SourceNetwork):
    torch.manual_seed(0)
    x = torch.randn(SAMPLES, *network.shape)
    first, second = network.bits(x)
    y = (first > 0).long() + 2 * (second > 0).long()
    net = network.make()
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(UPDATES):
        optimiser.zero_grad()
        functional.cross_entropy(net(x).flatten(0, -2), y.flatten()).backward()
        optimiser.step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of batches of another size than 1 in recurrent networks
        torch.onnx.export(net.eval(), (x[:1],), folder / f"{name}.onnx", dynamo=False)
    np.savez(folder / f"{name}.npz", x=x.numpy(), y=y.numpy())
