"""Training loops in block floating point and in FP32, which differ in their arithmetic only."""

import numpy as np
import torch
from concord.datasets.samples import Samples
from concord.golden.lazy.tensor_network import Conv, Dense, MaxPool, Relu
from concord.train.bfp.tensor import ExactTensor
from concord.train.bfp.tensor_network import TensorNetwork, batch
from concord.train.lib.export import floats
from concord.train.lib.fit import Progress, batches, cross_entropy, share, silent

#: A classifier of 28 x 28 pixels with 29,083 parameters.
CLASSIFIER = (Conv(1, 8, 3, padding=1), MaxPool(2, 2), Relu(), Conv(8, 16, 3, padding=1), MaxPool(2, 2), Relu(),
              Dense(784, 35), Relu(), Dense(35, 10))
#: Number of samples that are measured at once.
MEASURED = 1000


def images(samples: Samples) -> np.ndarray:
    """Images of Fashion-MNIST, float32[samples, 1, 28, 28]."""
    return floats(samples.inputs).numpy().reshape(-1, 1, 28, 28)


def fit(net: TensorNetwork, x: ExactTensor, labels: np.ndarray, *, epochs: int, batch_size: int, seed: int,
        done: int = 0, progress: Progress = silent):
    """Train on random batches at a constant learning rate.

    Args:
        net:        Network. The processes of its group share each batch: each takes its part of the same batch.
        x:          All training inputs, under one exponent.
        labels:     int[samples].
        epochs:     Number of epochs in all.
        batch_size: Number of samples of a step, over all processes.
        seed:       Seed of the order of samples.
        done:       Number of epochs that a checkpoint has after it.
        progress:   Called once an epoch.

    Raises:
        ValueError: a batch has fewer samples than there are processes.
    """
    generator, size, rank = torch.Generator().manual_seed(seed), net.group.size, net.group.rank
    for epoch in range(epochs):
        order, total = batches(len(labels), batch_size, generator), 0.0
        if epoch < done:
            continue
        for index in order:
            if len(index) < size:
                raise ValueError(f"a batch of {len(index)} samples for {size} processes; choose a batch size that "
                                 f"leaves at least {size} of {len(labels)} samples for the last one")
            part = index.tensor_split(size)[rank]
            total += net.step(batch(x, part), labels[part.numpy()]) * len(index)
        progress("block floating point", epoch + 1, epochs, f"loss {total / len(labels):.3f}")


def predictions(net: TensorNetwork, x: ExactTensor) -> np.ndarray:
    """The predicted classes, int64[samples]: of several largest outputs the first counts."""
    parts = torch.arange(len(x.values)).split(MEASURED)
    return np.concatenate([net.forward(batch(x, index)).values.argmax(1).cpu().numpy() for index in parts])


def accuracy(net: TensorNetwork, x: ExactTensor, labels: np.ndarray) -> float:
    """Share of samples that are classified correctly."""
    return share(predictions(net, x), labels)


def fit_float(net, x: torch.Tensor, labels: np.ndarray, *, epochs: int, batch_size: int, seed: int,
              learning_rate: float, momentum: float = 0.0, progress: Progress = silent):
    """Train an FP32 network by SGD on the same batches. Arguments are those of `fit` and of `Rates`."""
    optimiser = torch.optim.SGD(net.parameters(), lr=learning_rate, momentum=momentum)
    generator, targets = torch.Generator().manual_seed(seed), torch.from_numpy(np.asarray(labels, np.int64))
    for epoch in range(epochs):
        total = 0.0
        for index in batches(len(labels), batch_size, generator):
            optimiser.zero_grad()
            loss = cross_entropy(net(x[index]), targets[index])
            loss.backward()
            optimiser.step()
            total += loss.item() * len(index)
        progress("FP32", epoch + 1, epochs, f"loss {total / len(labels):.3f}")


def float_accuracy(net, x: torch.Tensor, labels: np.ndarray) -> float:
    """Share of samples that an FP32 network classifies correctly."""
    with torch.no_grad():
        return share(torch.cat([net(part).argmax(1) for part in x.split(MEASURED)]), labels)
