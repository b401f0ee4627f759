"""Time of a step of quantisation-aware training, as a multiple of that in FP32, in one interleaved run.

If the group `peers` is installed, other libraries are timed as well.
"""

from collections.abc import Callable

import torch
from concord.benchmarks import peers
from concord.benchmarks.interleaved import columns, rows
from concord.net.quantize.recipe import ActivationTraining, Recipe, WeightTraining
from concord.train.lib.fit import cross_entropy
from concord.train.lib.networks import NETWORKS
from concord.train.qat.network import QuantizedNetwork
from rich.console import Console
from torch import nn

ROUNDS = {"resnet": 20, "mobilenet": 20, "mlp": 100}
#: Number of images of a training step.
SIZES = {"resnet": 64, "mobilenet": 64, "mlp": 128}
LEARNED = {"weights": WeightTraining.LSQ, "activations": ActivationTraining.LSQ}
RECIPES = {
    "W4/A4, WRPN": Recipe(),
    "W4/A4, learned step": Recipe(**LEARNED),
    "W4/A4, learned step, normalised": Recipe(**LEARNED, normalise=True),
    "W4/A4, learned step, input kept": Recipe(**LEARNED, input_kept=True),
    "W8/A8, WRPN": Recipe(weights_bits=8, input_bits=8),
}
PEERS = {
    "torch.ao W8/A8": lambda net, x: peers.torch_ao(net),
    "torchao W4/A8, dense layers only": lambda net, x: peers.torchao(net),
    "Brevitas W4/A4": peers.brevitas,
    "QPyTorch BFP8": lambda net, x: peers.qpytorch(net),
}


def stepper(net: nn.Module, groups, x, labels, after: Callable = lambda: None) -> Callable[[], None]:
    """A function that makes one step of SGD."""
    optimiser = torch.optim.SGD(groups, lr=0.01, momentum=0.9)

    def step():
        optimiser.zero_grad()
        cross_entropy(net(x), labels).backward()
        optimiser.step()
        after()

    return step


def contestants(name: str, console: Console) -> dict[str, Callable[[], None]]:
    """For each kind of training, a function that makes one step."""
    x, labels = torch.rand(SIZES[name], 1, 28, 28), torch.arange(SIZES[name]) % 10
    real = NETWORKS[name]().train()
    steps = {"FP32": stepper(real, real.parameters(), x, labels)}
    if name != "mlp":
        last = NETWORKS[name]().train().to(memory_format=torch.channels_last)
        clone = x.clone(memory_format=torch.channels_last)
        steps["FP32, channels last"] = stepper(last, last.parameters(), clone, labels)
    for kind, recipe in RECIPES.items():
        if name != "mlp" or not recipe.normalise:
            net = QuantizedNetwork(NETWORKS[name]().eval(), x, recipe)
            steps[kind] = stepper(net, net.groups(0.01), x, labels, net.bound)
    for kind, made in PEERS.items():
        if name != "mlp" and "dense" in kind:
            continue
        try:
            net = made(NETWORKS[name]().train(), x)
        except ImportError as error:
            console.print(f"{kind} takes no part: {error}; pip install --group peers")
        else:
            steps[kind] = stepper(net, net.parameters(), x, labels)
    return steps


def report(console: Console):
    """Measure and print a table."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    table = columns("network", "training", "Training step, one thread")
    for name in SIZES:
        rows(table, name, contestants(name, console), ROUNDS[name])
    console.print(table)
