"""Times of several calls, measured in turn, a few calls of each at a time; and the tables of `--speed`.

A disturbance then affects all of them, and within a few calls in a row the caches hold the data of that call. Training
steps are timed as multiples of those in FP32, and blocks as multiples of our own quantiser. If the group `peers` is
installed, other libraries are timed as well.
"""

import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import torch
from concord.benchmarks import peers
from concord.golden.lazy.tensor_network import AveragePool, Conv, Dense, Relu, Residual
from concord.golden.lazy.tensor_training import Rates
from concord.net.quantize.recipe import ActivationTraining, Recipe, WeightTraining
from concord.spec.numbers.formats import Format
from concord.train.bfp import tensor_network
from concord.train.bfp.options import UpdateRule
from concord.train.lib.fit import cross_entropy
from concord.train.lib.networks import NETWORKS
from concord.train.network.quantized_network import behind_quantizers
from concord.train.qat.block_quantizer import quantize_block
from rich.console import Console
from rich.table import Table
from torch import nn

#: Number of warm-up rounds.
WARM = 2
#: Number of calls in a row; the first one is not timed.
CALLS = 3


def columns(of: str, kind: str, title: str, base: str = "FP32") -> Table:
    """An empty table for `rows`."""
    return Table(of, kind, "ms, median", "ms, least", f"multiple of {base}", title=title)


def rows(table: Table, name: str, calls: dict[str, Callable[[], object]], rounds: int, base: str = "FP32"):
    """Measure all calls, and add a row for each; times are multiples of that of the call named `base`."""
    times = {key: [] for key in calls}
    for _ in range(rounds):
        for key, call in calls.items():
            call()
            began = time.perf_counter()
            for _ in range(CALLS - 1):
                call()
            times[key].append(1000 * (time.perf_counter() - began) / (CALLS - 1))
    whole = np.median(times[base][WARM:])
    for key, found in times.items():
        middle = np.median(found[WARM:])
        table.add_row(name, key, f"{middle:.2f}", f"{min(found):.2f}", f"{middle / whole:.2f}")


def stepper(net: nn.Module, optimiser: torch.optim.Optimizer, x: torch.Tensor, labels: torch.Tensor,
            after: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """A function that makes one step of training."""
    def step():
        optimiser.zero_grad()
        cross_entropy(net(x), labels).backward()
        optimiser.step()
        after()

    return step


def alone():
    """Calls have one thread, and random numbers from a seed."""
    torch.set_num_threads(1)
    torch.manual_seed(0)


# Quantising 1,024 x 1,024 numbers to blocks of 16 with 8-bit mantissas.
SIZE, BLOCK = 1024, 16
FORMAT = Format(bits=8, symmetric=True)
#: Axes of a block: along neighbours in memory, or along the other axis, like the channels of images.
AXES = {"16 neighbours of a row": 1, "16 neighbours of a column": 0}


def blocks(x: torch.Tensor, axis: int) -> dict[str, Callable[[], object]]:
    """Our quantiser, in eager mode and compiled; and that of QPyTorch on blocks along a row, which is its fastest case.

    Raises:
        RuntimeError: our results differ.
    """
    compiled = torch.compile(quantize_block)
    sizes = x * 2.0 ** torch.randint(-30, 30, (SIZE, SIZE))  # some are subnormals or infinities of binary16
    sizes[:9, :9] = torch.tensor([0.0, -0.0, torch.nan, torch.inf, -torch.inf, 1.0, 2.0**-26, 1e38, 1e-45])
    if not torch.equal(compiled(sizes, FORMAT, BLOCK, axis), quantize_block(sizes, FORMAT, BLOCK, axis)):
        raise RuntimeError("the compiled quantiser gives other bits than the eager one; report this defect")
    found = {"this, eager": lambda: quantize_block(x, FORMAT, BLOCK, axis),
             "this, compiled": lambda: compiled(x, FORMAT, BLOCK, axis)}
    with suppress(ImportError):
        from qtorch.quant import block_quantize

        neighbours = x.view(-1, BLOCK)
        found["QPyTorch, of a row"] = lambda: block_quantize(neighbours, wl=FORMAT.bits, dim=0, rounding="nearest")
    return found


def report_blocks(console: Console):
    """Measure quantisers of blocks, and print a table."""
    alone()
    x = torch.randn(SIZE, SIZE)
    table = columns("blocks", "by", f"{SIZE} x {SIZE} numbers to 8-bit mantissas, one thread", "this, eager")
    with torch.no_grad():
        for name, axis in AXES.items():
            rows(table, name, blocks(x, axis), 50, "this, eager")
    console.print(table)


# Training under the lazy update. QPyTorch has 8-bit weights, activations and gradients, rounded to nearest.
def residual(inputs: int, outputs: int, stride: int) -> tuple:
    """A residual block: two convolutions and a shortcut."""
    shortcut = (Conv(inputs, outputs, 1, stride),) if stride > 1 else ()
    body = Conv(inputs, outputs, 3, stride, 1), Relu(), Conv(outputs, outputs, 3, 1, 1)
    return Residual(body, shortcut), Relu()


RESNET = (Conv(1, 16, 3, 1, 1), Relu(), *residual(16, 16, 1), *residual(16, 32, 2), *residual(32, 64, 2),
          AveragePool(7, 7), Dense(64, 10))
MLP = (Dense(784, 128), Relu(), Dense(128, 64), Relu(), Dense(64, 10))
LAZY_NETWORKS = {"ResNet-style": (RESNET, (64, 1, 28, 28)), "MLP": (MLP, (128, 784))}


def lazy_steps(layers, shape, rng) -> dict[str, Callable[[], None]]:
    """For each arithmetic, a function that makes one training step."""
    values, labels = rng.random(shape, np.float32), rng.integers(0, 10, shape[0])
    x, exact = torch.from_numpy(values), tensor_network.inputs(values)
    lazy = tensor_network.network(layers, UpdateRule.LAZY, Rates(learning_rate=0.02))

    def in_float(net: nn.Module, inputs: torch.Tensor) -> Callable[[], None]:
        return stepper(net, torch.optim.SGD(net.parameters(), lr=0.02), inputs, torch.from_numpy(labels))

    steps = {"FP32": in_float(tensor_network.float_network(layers), x),
             "BFP, lazy update": lambda: lazy.step(exact, labels)}
    if len(shape) == 4:
        last = tensor_network.float_network(layers).to(memory_format=torch.channels_last)
        steps["FP32, channels last"] = in_float(last, x.contiguous(memory_format=torch.channels_last))
    with suppress(ImportError):
        steps["QPyTorch BFP8"] = in_float(peers.qpytorch(tensor_network.float_network(layers)), x)
    return steps


def report_lazy(console: Console):
    """Measure training steps under the lazy update, and print a table."""
    alone()
    rng = np.random.default_rng(0)
    table = columns("network", "arithmetic", "Training step, one thread")
    for name, (layers, shape) in LAZY_NETWORKS.items():
        rows(table, name, lazy_steps(layers, shape, rng), 15)
    console.print(table)


# Quantisation-aware training: for each network, the number of rounds, and of images of a training step.
ROUNDS = {"resnet": 20, "mobilenet": 20, "mlp": 100}
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


def quantized_steps(name: str, console: Console) -> dict[str, Callable[[], None]]:
    """For each kind of training, a function that makes one step."""
    x, labels = torch.rand(SIZES[name], 1, 28, 28), torch.arange(SIZES[name]) % 10

    def step(net: nn.Module, groups, inputs: torch.Tensor = x, **options) -> Callable[[], None]:
        return stepper(net, torch.optim.SGD(groups, lr=0.01, momentum=0.9), inputs, labels, **options)

    real = NETWORKS[name]().train()
    steps = {"FP32": step(real, real.parameters())}
    if name != "mlp":
        last = NETWORKS[name]().train().to(memory_format=torch.channels_last)
        steps["FP32, channels last"] = step(last, last.parameters(), x.clone(memory_format=torch.channels_last))
    for kind, recipe in RECIPES.items():
        if name != "mlp" or not recipe.normalise:
            net = behind_quantizers(NETWORKS[name]().eval(), x, recipe)
            steps[kind] = step(net, net.groups(0.01), after=net.bound)
    for kind, made in PEERS.items():
        if name != "mlp" and "dense" in kind:
            continue
        try:
            net = made(NETWORKS[name]().train(), x)
        except ImportError as error:
            console.print(f"{kind} takes no part: {error}; pip install --group peers")
        else:
            steps[kind] = step(net, net.parameters())
    return steps


def report_quantized(console: Console):
    """Measure steps of quantisation-aware training, and print a table."""
    alone()
    table = columns("network", "training", "Training step, one thread")
    for name in SIZES:
        rows(table, name, quantized_steps(name, console), ROUNDS[name])
    console.print(table)
