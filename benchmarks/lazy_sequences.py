"""Compare update rules on sequences: an LSTM and a GRU of 32 cells learn JapaneseVowels by SGD with momentum."""

from itertools import product
from pathlib import Path

import numpy as np
import torch
from concord.golden.lazy.tensor_training import Rates
from concord.lib.processes import side_by_side
from concord.train.bfp import tensor_fit
from concord.train.bfp.options import UpdateRule
from concord.train.bfp.parameters import state_bytes
from concord.train.bfp.tensor_network import initial_values, network
from concord.train.lib.fit import reproducible, share
from concord.train.runs.lazy import float_classifier, of_sequences
from rich.console import Console
from rich.table import Table

RULES = (UpdateRule.FP32, UpdateRule.MASTER, UpdateRule.LAZY, UpdateRule.NONE)
CELLS = ("lstm", "gru")
RATES = Rates(learning_rate=0.1, momentum=0.9)


def train_sequences(
    cell: str, rule: UpdateRule, seed: int, epochs: int, folder: Path | None,
) -> tuple[tuple[str, UpdateRule, int], float]:
    """Cell, rule and seed, and the accuracy on the test set in percent, from the same numbers for every rule."""
    reproducible(seed)
    trainee = of_sequences(cell, folder, (32,))
    train, test, values = trainee.sets.train, trainee.sets.test, initial_values(trainee.layers, seed)
    options = {"epochs": epochs, "batch_size": trainee.batch, "seed": seed}
    if rule is UpdateRule.FP32:
        real = float_classifier(trainee.layers, values)
        tensor_fit.fit_float(
            real, torch.from_numpy(trainee.inputs(train)), train.labels, learning_rate=RATES.learning_rate,
            momentum=RATES.momentum, falls=True, lengths=train.lengths, **options)
        made = tensor_fit.float_outputs(real, torch.from_numpy(trainee.inputs(test)), test.lengths).argmax(1)
    else:
        net = network(trainee.layers, rule, RATES, seed=seed, values=values)
        tensor_fit.fit(net, trainee.tensors(train), train.labels, rate=RATES.learning_rate, **options)
        made = tensor_fit.predictions(net, trainee.tensors(test))
    return (cell, rule, seed), 100 * share(made, test.labels)


def report_sequences(folder: Path | None, seeds: int, epochs: int, console: Console):
    """Train with each rule from each seed, in two processes, and print the accuracies."""
    jobs = [(cell, rule, seed, epochs, folder) for seed in range(seeds) for cell in CELLS for rule in RULES]
    found = dict(side_by_side("training", train_sequences, jobs, console))
    table = Table("cell", "rule", "accuracy, mean", "each seed", "bytes a parameter",
                  title=f"JapaneseVowels, 32 cells, {epochs} epochs")
    for cell, rule in product(CELLS, RULES):
        rows = [found[cell, rule, seed] for seed in range(seeds)]
        table.add_row(cell, rule, f"{np.mean(rows):.2f}", " ".join(f"{row:.2f}" for row in rows),
                      str(state_bytes(rule, RATES)["all"]))
    console.print(table)
