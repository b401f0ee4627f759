"""How often the exponent of a training tensor is that of the step before: `nox -s bench_lazy -- --exponents`.

A machine that trains converts sums under a guessed exponent while it measures them, and repeats the pass where the
guess was wrong. Two networks learn Fashion-MNIST by SGD with momentum, and every tensor that is brought to its bits
tells the exponent it had. Gradients and updates of parameters take no guess: their sums go on in their own unit.
"""

from collections import defaultdict

import numpy as np
import torch
from concord.golden.lazy.tensor_network import Conv, Dense, MaxPool, Relu
from concord.golden.lazy.tensor_training import Rates
from concord.lib.processes import side_by_side
from concord.train.bfp import tensor_fit
from concord.train.bfp.options import UpdateRule
from concord.train.bfp.tensor_layers import ProductLayer
from concord.train.bfp.tensor_network import TensorNetwork, batch, inputs, network
from concord.train.lib import data
from concord.train.lib.fit import batches, reproducible
from rich.console import Console
from rich.table import Table

PERCEPTRON = (Dense(784, 128), Relu(), Dense(128, 64), Relu(), Dense(64, 10))
CONVOLUTIONS = (Conv(1, 16, 3, padding=1), MaxPool(2, 2), Relu(), Conv(16, 32, 3, padding=1), MaxPool(2, 2), Relu(),
                Dense(1568, 10))
#: Layers and number of samples in a batch.
NETWORKS = {"perceptron 784-128-64-10": (PERCEPTRON, 64), "convolutions of 16 and 32 channels": (CONVOLUTIONS, 32)}
RATES = Rates(learning_rate=0.02, momentum=0.9)
STEPS = 400


def record(net: TensorNetwork) -> dict[str, list[int]]:
    """Lists, by name, to which each step adds the exponents of activations and of gradients."""
    found = defaultdict(list)

    def watched(call, name: str):
        def watch(x):
            made = call(x)
            if made is not None:
                found[name].append(made.lsb)
            return made

        return watch

    for layer in net.layers:
        if isinstance(layer, ProductLayer):
            layer.forward = watched(layer.forward, f"activation {layer.name}")
            layer.backward = watched(layer.backward, f"gradient {layer.name}")
    net.forward = watched(net.forward, "output")
    return found


def train_watched(name: str, seed: int) -> tuple[str, dict[str, list[int]], int]:
    """Train a network for an epoch of STEPS steps: name, exponents by tensor, and changes of parameters' exponents."""
    reproducible(seed)
    layers, size = NETWORKS[name]
    net = network(layers, UpdateRule.LAZY, RATES, seed=seed)
    samples = data.fashion_mnist().first(STEPS * size)
    x = inputs(tensor_fit.images(samples))
    found = record(net)
    for index in batches(len(samples.labels), size, torch.Generator().manual_seed(seed)):
        net.step(batch(x, index), samples.labels[index.numpy()])
        for part, kept in net.parameters.items():
            found[f"momentum {part}"].append(kept.momentum.lsb)
    return name, found, net.counts.changes


def right(exponents: list[int]) -> float:
    """Share, in percent, of steps after the first whose exponent is that of the step before."""
    return 100 * float(np.mean(np.diff(exponents) == 0))


def report_exponents(seeds: int, console: Console):
    """Train each network from each seed, in two processes, and print how often each guess was right."""
    jobs = [(name, seed) for seed in range(seeds) for name in NETWORKS]
    runs = side_by_side("training", train_watched, jobs, console)
    for name, (_, size) in NETWORKS.items():
        _, chosen, changes = zip(*(run for run in runs if run[0] == name), strict=True)
        table = Table("tensor", "right, mean, %", "least of the seeds, %",
                      title=f"{name}, batches of {size}, {seeds} x {STEPS} steps")
        for tensor in chosen[0]:
            shares = [right(found[tensor]) for found in chosen]
            table.add_row(tensor, f"{np.mean(shares):.1f}", f"{min(shares):.1f}")
        console.print(table)
        updates = sum(tensor.startswith("momentum") for tensor in chosen[0]) * STEPS * seeds
        console.print(f"Exponents of parameters changed in {sum(changes)} of {updates} updates.")
