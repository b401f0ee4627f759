"""The training loop that every phase shares."""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import nn

#: Called as progress(phase, step, steps, note): phase in words, steps done and in all, a note such as the loss.
Progress = Callable[[str, int, int, str], None]


def silent(phase: str, step: int, steps: int, note: str):
    """Report nothing."""


def reproducible(seed: int):
    """Make training give the same bits on any number of cores: one thread, one seed."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)


def batches(count: int, size: int, generator: torch.Generator) -> Iterable[torch.Tensor]:
    """One epoch of random batches of indices."""
    return torch.randperm(count, generator=generator).split(size)


def fit(
    *,
    phase: str,
    loss: Callable[[torch.Tensor], torch.Tensor],
    optimiser: torch.optim.Optimizer,
    count: int,
    batch: int,
    epochs: int,
    seed: int,
    progress: Progress,
    after_step: Callable[[], None] = lambda: None,
    after_epoch: Callable[[], object] = lambda: None,
):
    """Run an optimiser over `epochs` of random batches, its learning rates falling along a half cosine.

    Args:
        loss:        Mean loss of the samples with these indices.
        count:       Training samples.
        after_step:  Called when parameters have changed: keeps them in their bounds.
        after_epoch: Called at the end of each epoch.
    """
    steps = epochs * -(-count // batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(steps, 1))
    generator = torch.Generator().manual_seed(seed)
    done = 0
    for _ in range(epochs):
        total = 0.0
        for index in batches(count, batch, generator):
            optimiser.zero_grad()
            value = loss(index)
            value.backward()
            optimiser.step()
            schedule.step()
            after_step()
            done += 1
            total += value.item() * len(index)
            if done % 50 == 0:
                progress(phase, done, steps, "")
        after_epoch()
        progress(phase, done, steps, f"loss {total / count:.3f}")


def share(predictions, labels) -> float:
    """Share of predictions that are right."""
    return float(np.mean(np.asarray(predictions) == np.asarray(labels)))


def cross_entropy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, labels.long())
