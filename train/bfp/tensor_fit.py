"""Training loops in block floating point and in FP32, which differ in their arithmetic only."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from concord.datasets.samples import Samples
from concord.golden.lazy.tensor_network import Conv, Dense, MaxPool, Relu
from concord.train.bfp.tensor import ExactTensor
from concord.train.bfp.tensor_network import TensorNetwork, batch
from concord.train.lib.export import floats
from concord.train.lib.fit import Progress, batches, cross_entropy, share, silent
from concord.train.lib.observer import EpochRecord, Observer

#: A classifier of 28 x 28 pixels with 29,083 parameters.
CLASSIFIER = (Conv(1, 8, 3, padding=1), MaxPool(2, 2), Relu(), Conv(8, 16, 3, padding=1), MaxPool(2, 2), Relu(),
              Dense(784, 35), Relu(), Dense(35, 10))
PHASE = "lazy update"  #: Name of the training in block floating point, for progress and logs.
#: Number of samples that are measured at once.
MEASURED = 1000


def images(samples: Samples) -> np.ndarray:
    """Images of Fashion-MNIST, float32[samples, 1, 28, 28]."""
    return floats(samples.inputs).numpy().reshape(-1, 1, 28, 28)


def fit(net: TensorNetwork, x: ExactTensor, labels: np.ndarray, *, epochs: int, batch_size: int, seed: int,
        losses: Sequence[float] = (), rate: float | None = None, patience: int = 0, progress: Progress = silent,
        after_epoch: Callable[[list[float]], None] = lambda losses: None) -> list[float]:
    """Train on random batches.

    Training ends after a number of epochs, or when it has converged (source: [0149] of the second hardware document).

    Args:
        net:         Network. The processes of its group share each batch: each takes its part of the same batch.
        x:           All training inputs, under one exponent.
        labels:      int[samples].
        epochs:      Most epochs in all.
        batch_size:  Number of samples of a step, over all processes.
        seed:        Seed of the order of samples.
        losses:      Mean losses of the epochs that a checkpoint has after it.
        rate:        Learning rate at the start, which falls along a half cosine from epoch to epoch; None for the
            constant one of the parameters.
        patience:    Number of epochs in a row without a new smallest mean loss after which training has converged; 0
            for all epochs.
        progress:    Called once an epoch.
        after_epoch: Function called after each epoch with the losses so far.

    Returns:
        The mean losses of all epochs that were trained.

    Raises:
        ValueError: a batch has fewer samples than there are processes.
    """
    _check_last(len(labels), batch_size, net.group.size)
    generator, found = torch.Generator().manual_seed(seed), list(losses)
    for epoch in range(epochs):
        order = batches(len(labels), batch_size, generator)
        now = None if rate is None else falling(rate, epoch, epochs)
        record = partial(EpochRecord, phase=PHASE, epoch=epoch + 1, step=(epoch + 1) * len(order), rate=now)
        if epoch < len(losses):  # a log is whole after going on, too
            Observer.of(progress).write(record(loss=losses[epoch]))
            continue
        if patience and found and len(found) - 1 - found.index(min(found)) >= patience:
            break
        if now is not None:
            net.pace(now)
        # The order in which processes add up losses changes no more than the last digits.
        found.append(float(f"{_epoch(net, x, labels, order) / len(labels):.6g}"))
        Observer.of(progress).write(record(loss=found[-1]))
        progress(PHASE, epoch + 1, epochs, f"loss {found[-1]:.3f}")
        after_epoch(found)
    return found


def _check_last(count: int, batch_size: int, processes: int):
    """Refuse a last batch, the smallest one, of which a process would have no sample."""
    last = (count - 1) % batch_size + 1
    if last < processes:
        raise ValueError(f"a batch of {last} samples for {processes} processes: {count} samples in batches of "
                         f"{batch_size} leave them for the last one; use another number of samples, or fewer processes")


def _epoch(net: TensorNetwork, x: ExactTensor, labels: np.ndarray, order) -> float:
    """Train on batches of samples, and return the sum of the losses of all samples."""
    total, size, rank = 0.0, net.group.size, net.group.rank
    for index in order:
        part = index.tensor_split(size)[rank]
        total += net.step(batch(x, part), labels[part.numpy()]) * len(index)
    return total


def outputs(net: TensorNetwork, x: ExactTensor) -> np.ndarray:
    """Real outputs, float64[samples, classes]."""
    parts = torch.arange(len(x.values)).split(MEASURED)
    return np.concatenate([net.forward(batch(x, index)).golden().values for index in parts])


def predictions(net: TensorNetwork, x: ExactTensor) -> np.ndarray:
    """The predicted classes, int64[samples]: of several largest outputs the first counts."""
    return outputs(net, x).argmax(1)


def accuracy(net: TensorNetwork, x: ExactTensor, labels: np.ndarray) -> float:
    """Share of samples that are classified correctly."""
    return share(predictions(net, x), labels)


def fit_float(net, x: torch.Tensor, labels: np.ndarray, *, epochs: int, batch_size: int, seed: int,
              learning_rate: float, momentum: float = 0.0, falls: bool = False, lengths: np.ndarray | None = None,
              progress: Progress = silent):
    """Train an FP32 network by SGD on the same batches. Arguments are those of `fit` and of `Rates`.

    Args:
        falls:   Whether the learning rate falls along a half cosine from epoch to epoch.
        lengths: int[samples], time steps of each sample, for a network that takes them, too.
    """
    optimiser = torch.optim.SGD(net.parameters(), lr=learning_rate, momentum=momentum)
    generator, targets = torch.Generator().manual_seed(seed), torch.from_numpy(np.asarray(labels, np.int64))
    for epoch in range(epochs):
        total = 0.0
        if falls:
            optimiser.param_groups[0]["lr"] = falling(learning_rate, epoch, epochs)
        for index in batches(len(labels), batch_size, generator):
            optimiser.zero_grad()
            loss = cross_entropy(net(x[index], *_some(lengths, index)), targets[index])
            loss.backward()
            optimiser.step()
            total += loss.item() * len(index)
        progress("FP32, to compare", epoch + 1, epochs, f"loss {total / len(labels):.3f}")


def falling(rate: float, epoch: int, epochs: int) -> float:
    """The learning rate of an epoch, along a half cosine."""
    return rate * (1 + np.cos(np.pi * epoch / epochs)) / 2


def _some(lengths: np.ndarray | None, index: torch.Tensor) -> list[torch.Tensor]:
    return [] if lengths is None else [torch.from_numpy(lengths)[index]]


def float_outputs(net, x: torch.Tensor, lengths: np.ndarray | None = None) -> torch.Tensor:
    """Outputs of an FP32 network; for `lengths` see `fit_float`."""
    with torch.no_grad():
        return torch.cat([net(x[index], *_some(lengths, index)) for index in torch.arange(len(x)).split(MEASURED)])


def float_accuracy(net, x: torch.Tensor, labels: np.ndarray) -> float:
    """Share of samples that an FP32 network classifies correctly."""
    return share(float_outputs(net, x).argmax(1), labels)
