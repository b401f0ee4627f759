"""Samples as tensors in the form that a network under training takes, and what it is trained for, by its task."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from concord.datasets.samples import UNLABELLED, DataSet, Samples, Task
from concord.train.lib.export import floats
from torch import nn
from torch.nn import functional

#: Number of samples that are computed at once.
TOGETHER = 250
#: Targets whose variance is a smaller share of their mean square are equal: the rest is rounding of float32.
NO_SPREAD = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SampleTensors:
    """Samples of one kind.

    Attributes:
        x:       float32[samples, elements], or float32[samples, time, elements].
        lengths: int64[samples], time steps of each sequence; None where samples are no sequences.
        samples: The same as the machine reads them, and their labels.
    """

    x: torch.Tensor
    lengths: torch.Tensor | None
    samples: Samples

    @classmethod
    def of(cls, samples: Samples) -> "SampleTensors":
        """Samples as a data set has them."""
        x, lengths = floats(samples.inputs), None
        if x.dim() == 3:
            given = np.full(len(x), x.shape[1]) if samples.lengths is None else samples.lengths
            lengths = torch.from_numpy(np.asarray(given, np.int64))
        return cls(x=x, lengths=lengths, samples=samples)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.samples)

    def at(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What enters a network for the samples of these indices."""
        return self.x[index], None if self.lengths is None else self.lengths[index]

    @torch.no_grad()
    def outputs(self, net: nn.Module, *, lowered: bool = False) -> torch.Tensor:
        """float32[samples, outputs] of a network with quantisers, in evaluation mode."""
        training = net.training
        net.eval()
        made = torch.cat([net(*self.at(index), lowered=lowered) for index in torch.arange(len(self)).split(TOGETHER)])
        net.train(training)
        return made


#: The mean loss of results float32[samples, outputs] for the samples of these indices.
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def trainable(data: DataSet, outputs: int) -> Samples:
    """The samples that a network is trained on: for anomalies, those without one.

    Raises:
        ValueError: there are none, or they have no labels that the task needs.
    """
    if data.train is None:
        raise ValueError(f"{data.name}: there are no training samples; name them in the data's TOML file, or quantise "
                         "without training by `nnp quantize`")
    if data.task is Task.NONE or data.train.labels is None and data.task is not Task.ANOMALY:
        raise ValueError(f"{data.name}: training needs labels; name them in the data's TOML file, or quantise without "
                         "training by `nnp quantize`")
    if data.task is not Task.ANOMALY:
        if data.train.steps > 1 and (data.train.labels == UNLABELLED).all():
            raise ValueError(f"{data.name}: no time step or pixel of the training samples has a class, all are "
                             f"{UNLABELLED}; give some a class, or quantise without training by `nnp quantize`")
        return data.train
    if data.sequence or outputs != data.train.inputs.shape[-1]:
        raise ValueError(f"{data.name}: a network for anomalies is trained to restore its input, but it has {outputs} "
                         f"outputs for {data.train.inputs.shape[-1]} inputs; train a score with `task = "
                         "\"regression\"`")
    labels = data.train.labels
    normal = data.train if labels is None else data.train.part(np.asarray(labels) == 0)
    if not len(normal):
        raise ValueError(f"{data.name}: all training samples are anomalies, but training restores those that are none")
    return normal


def loss_of(task: Task, part: SampleTensors) -> Loss:
    """The loss of the results for training samples.

    A mean square is divided by the variance of the targets, so that one learning rate suits all units.
    """
    if task is Task.CLASSIFICATION:
        labels, steps = torch.from_numpy(part.samples.labels.astype(np.int64)), part.samples.steps
        return lambda made, index: _cross_entropy(
            made if steps == 1 else made.unflatten(1, (-1, steps)), labels[index])
    targets = part.x.flatten(1) if task is Task.ANOMALY else torch.from_numpy(
        np.array(part.samples.labels, np.float32))
    unit = _unit(targets)
    return lambda made, index: functional.mse_loss(made, targets[index]) / unit


def _unit(targets: torch.Tensor) -> float:
    """By what a mean square is divided: the variance of the targets; of equal ones their square, of zeros 1."""
    variance, square = targets.var(unbiased=False).item(), targets.square().mean().item()
    return variance if variance > NO_SPREAD * square else square or 1.0


def _cross_entropy(made: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean over all that has a class; 0 for a batch in which nothing has, whose mean would be NaN."""
    if (labels == UNLABELLED).all():
        return 0 * made.sum()
    return functional.cross_entropy(made, labels, ignore_index=UNLABELLED)
