"""What a network is trained for, by its task: the loss of samples, and labels that this loss can use."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from concord.model.data.samples import DataSet, Samples, Task
from concord.train.imported.part import Part
from torch.nn import functional

#: The mean loss of results float32[samples, outputs] for the samples of these indices.
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def check_labels(data: DataSet, outputs: int):
    """Refuse labels that do not fit the outputs of a network.

    Raises:
        ValueError: a class has no output, or a sample has another number of targets.
    """
    for name, part in data.parts().items():
        labels = None if part is None else part.labels
        if labels is None or not len(labels):
            continue
        where = f"{data.name}, {name} samples"
        if data.task is Task.CLASSIFICATION and labels.max() >= outputs:
            row = int(np.argmax(labels))
            raise ValueError(f"{where}: sample {row} has class {labels[row]}, but the network has the outputs "
                             f"0..{outputs - 1}; check the labels" + ' or choose `task = "anomaly"`' * (outputs == 1))
        if data.task is Task.REGRESSION and labels.shape[1] != outputs:
            whole = labels.shape[1] == 1 and bool((labels >= 0).all() and (labels == np.rint(labels)).all())
            classes = '; labels that are classes are saved as integers, or called `task = "classification"`' * whole
            raise ValueError(f"{where}: {labels.shape[1]} target{'s' * (labels.shape[1] != 1)} for each sample, but "
                             f"the network has {outputs} outputs; name as many columns of labels{classes}")
        if data.task is Task.ANOMALY and outputs not in (1, part.inputs.shape[-1]):
            raise ValueError(f"{where}: an anomaly is scored by one output, or by as many as the "
                             f"{part.inputs.shape[-1]} inputs, which they restore; the network has {outputs}")


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


def loss_of(task: Task, part: Part) -> Loss:
    """The loss of the results for training samples.

    A mean square is divided by the variance of the targets, so that one learning rate suits all units.
    """
    if task is Task.CLASSIFICATION:
        labels = torch.from_numpy(part.samples.labels.astype(np.int64))
        return lambda made, index: functional.cross_entropy(made, labels[index])
    targets = part.inputs[0].flatten(1) if task is Task.ANOMALY else torch.from_numpy(
        np.array(part.samples.labels, np.float32))
    variance = max(targets.var(unbiased=False).item(), 1e-12)
    return lambda made, index: functional.mse_loss(made, targets[index]) / variance


def with_classes(samples: Samples, task: Task, outputs: int) -> Samples:
    """Samples with a name for each output of a classifier."""
    if task is not Task.CLASSIFICATION or len(samples.classes) >= outputs:
        return samples
    more = (f"class {index}" for index in range(len(samples.classes), outputs))
    return replace(samples, classes=(*samples.classes, *more))
