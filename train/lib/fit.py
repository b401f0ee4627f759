"""The training loop that every phase shares."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral

import numpy as np
import torch
from concord.train.lib.observer import EpochRecord, Observer, Progress, Stateful, TrainingState, TrainingStep, silent
from torch import nn

#: Seeds lie from -SEEDS up to SEEDS.
SEEDS = 1 << 63


def reproducible(seed: int):
    """Make training give the same bits on any number of cores: one thread, one seed.

    Raises:
        ValueError: the seed is none that generators of random numbers take.
    """
    if not isinstance(seed, Integral) or not -SEEDS <= seed < SEEDS:
        raise ValueError(f"--seed {seed!r}: a seed is a whole number of at most 64 bits, such as 0")
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)


def batches(count: int, size: int, generator: torch.Generator) -> Iterable[torch.Tensor]:
    """Random batches of indices, for one epoch."""
    return torch.randperm(count, generator=generator).split(size)


def fit(
    *,
    phase: str,
    net: nn.Module,
    loss: Callable[[torch.Tensor], torch.Tensor],
    optimiser: torch.optim.Optimizer,
    count: int,
    batch: int,
    epochs: int,
    seed: int,
    progress: Progress = silent,
    after_step: Callable[[], None] = lambda: None,
    after_epoch: Callable[[], Mapping | None] = lambda: None,
    accuracy: Callable[[], float] | None = None,
    noise: torch.Generator | None = None,
    also: Mapping[str, Stateful] | None = None,
):
    """Run an optimiser over `epochs` of random batches, its learning rates falling along a half cosine.

    Args:
        phase:       Name of the phase, for progress, log and checkpoints.
        net:         Network under training.
        loss:        Function that returns the mean loss of the samples with these indices.
        optimiser:   Optimiser of the parameters.
        count:       Number of training samples.
        batch:       Number of samples in a batch.
        epochs:      Number of epochs.
        seed:        Seed of the order of samples.
        progress:    Shows steps. If it is an `Observer` with checkpoints, training resumes from them, to the bit.
        after_step:  Function called after each step, which keeps parameters in their bounds.
        after_epoch: Function called after each epoch; it may return `figures` of `EpochRecord`.
        accuracy:    Function that measures the accuracy on the test set. It is called after each epoch if there is a
            log.
        noise:       Generator of the random numbers that `loss` draws.
        also:        State that `after_epoch` changes beside `net`, by name.

    Raises:
        ValueError: training has diverged.
    """
    steps = -(-count // batch)
    observer, order = Observer.of(progress), torch.Generator().manual_seed(seed)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(epochs * steps, 1))
    state = TrainingState(net=net, optimiser=optimiser, schedule=schedule, also=also or {},
                          generators={"order": order} | ({"noise": noise} if noise else {}))
    behind = observer.begin(phase, state)
    if behind:
        progress(phase, behind[-1].step, epochs * steps, f"loss {behind[-1].loss:.3f}")
    for epoch in range(len(behind), epochs):
        total, seen = 0.0, 0
        for done, index in enumerate(batches(count, batch, order), epoch * steps + 1):
            observer.ready(TrainingStep(epochs=epochs, steps=steps), state)
            if observer.stopped:
                break
            rate = optimiser.param_groups[0]["lr"]
            optimiser.zero_grad()
            value = loss(index)
            number = value.item()
            if not math.isfinite(number):
                raise ValueError(f"{phase}, epoch {epoch + 1}: the loss is {number}, since training has diverged: try "
                                 "a lower learning rate, more bits, a wider accumulator, or another seed")
            value.backward()
            optimiser.step()
            schedule.step()
            after_step()
            total, seen = total + number * len(index), seen + len(index)
            observer.finished(number, rate)
            last = done
            if done % 50 == 0:
                progress(phase, done, epochs * steps, "")
        if not seen:
            break
        figures = after_epoch() or {}
        measured = _measured(net, accuracy) if accuracy and observer.measures else None
        record = EpochRecord(phase=phase, epoch=epoch + 1, step=last, rate=rate, loss=total / seen, accuracy=measured,
                             figures=figures)
        observer.end(record, state)
        progress(phase, last, epochs * steps, f"loss {record.loss:.3f}")
        if observer.stopped:
            break


def begin_log(phase: str, net: nn.Module, accuracy: Callable[[], float], rate: float, progress: Progress):
    """Log the accuracy before the first epoch of a phase, as its epoch 0, if there is a log."""
    observer = Observer.of(progress)
    if observer.measures:
        observer.write(EpochRecord(
            phase=phase, epoch=0, step=0, rate=rate, loss=None, accuracy=_measured(net, accuracy)))


def _measured(net: nn.Module, accuracy: Callable[[], float]) -> float:
    """Measure an accuracy, and leave the network in the mode that it was in."""
    training = net.training
    found = accuracy()
    net.train(training)
    return found


def check_epochs(epochs: Sequence[int]):
    """Refuse negative numbers of epochs.

    Raises:
        ValueError: a phase has fewer than 0 epochs.
    """
    if min(epochs) < 0:
        raise ValueError(f"epochs are {list(epochs)}: none of the phases can have fewer than 0")


def share(predictions, labels) -> float:
    """Share of the predictions that equal their labels."""
    return float(np.mean(np.asarray(predictions) == np.asarray(labels)))


def cross_entropy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, labels.long())
