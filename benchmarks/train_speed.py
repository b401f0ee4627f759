"""Time of a step of quantisation-aware training, as a multiple of that in FP32, in one interleaved run."""

from collections.abc import Callable

import torch
from rich.console import Console
from torch import nn

from benchmarks.interleaved import columns, rows
from train.fit import cross_entropy
from train.methods import ActivationTraining, Recipe, WeightTraining
from train.networks import NETWORKS
from train.qat.network import QuantisedNetwork

ROUNDS, BATCH = 30, 64
RECIPES = {
    "W4/A4, WRPN": Recipe(),
    "W4/A4, learned step": Recipe(weights=WeightTraining.LSQ, activations=ActivationTraining.LSQ),
    "W8/A8, WRPN": Recipe(weights_bits=8, input_bits=8),
}


def stepper(net: nn.Module, groups, x, labels, after: Callable = lambda: None) -> Callable[[], None]:
    """A step of SGD."""
    optimiser = torch.optim.SGD(groups, lr=0.01, momentum=0.9)

    def step():
        optimiser.zero_grad()
        cross_entropy(net(x), labels).backward()
        optimiser.step()
        after()

    return step


def contestants(name: str, x, labels) -> dict[str, Callable[[], None]]:
    """A training step of each kind."""
    real = NETWORKS[name]().train()
    steps = {"FP32": stepper(real, real.parameters(), x, labels)}
    for kind, recipe in RECIPES.items():
        net = QuantisedNetwork(NETWORKS[name]().eval(), x, recipe)
        steps[kind] = stepper(net, net.groups(0.01), x, labels, net.bound)
    return steps


def report(console: Console):
    """Measure and print."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, labels = torch.rand(BATCH, 1, 28, 28), torch.arange(BATCH) % 10
    table = columns("network", "training", f"Training step of {BATCH} images, one thread")
    for name in "resnet", "mobilenet", "mlp":
        rows(table, name, contestants(name, x, labels), ROUNDS)
    console.print(table)
