"""What a network is trained for, by its task: the loss of samples, and labels that this loss can use."""

from collections.abc import Callable

import numpy as np
import torch
from concord.datasets.samples import DataSet, Samples, Task
from concord.train.lib.samples import SampleTensors
from torch.nn import functional

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
        labels = torch.from_numpy(part.samples.labels.astype(np.int64))
        return lambda made, index: functional.cross_entropy(made, labels[index])
    targets = part.x.flatten(1) if task is Task.ANOMALY else torch.from_numpy(
        np.array(part.samples.labels, np.float32))
    variance = max(targets.var(unbiased=False).item(), 1e-12)
    return lambda made, index: functional.mse_loss(made, targets[index]) / variance
