"""Images to train on, and FP32 networks trained on them."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from concord.datasets import dataset
from concord.train.lib import data, fp32_file
from concord.train.lib.export import floats
from concord.train.lib.factory import build
from concord.train.lib.fit import Progress, cross_entropy, fit, share, silent
from concord.train.lib.networks import CLASSES, SHAPE
from torch import nn

#: Numbers of samples: in the calibration set, in a batch, and measured at once.
CALIBRATION, BATCH, MEASURED = 256, 50, 500


@dataclass(frozen=True, slots=True)
class Images:
    """Images of 28 x 28 pixels in ten classes.

    Attributes:
        x, labels:           float32[samples, 1, 28, 28] to train on, and their classes.
        test_x, test_labels: The test set.
        sets:                Data sets of which they are a part, or None.
    """

    x: torch.Tensor
    labels: torch.Tensor
    test_x: torch.Tensor
    test_labels: torch.Tensor
    sets: data.Sets | None = None

    @classmethod
    def load(cls, samples: int, folder: Path | None = None) -> "Images":
        """The first training images, and all test images: of Fashion-MNIST, or of a folder.

        Raises:
            ValueError: the data are missing, or of another size or more classes than the networks take.
        """
        sets = data.image_sets(folder)
        pixels, classes = sets.train.inputs.shape[1], len(sets.train.classes)
        if pixels != math.prod(SHAPE) or classes > CLASSES:
            raise ValueError(f"{folder}: the networks take images of {SHAPE[1]} x {SHAPE[2]} pixels in at most "
                             f"{CLASSES} classes, not {pixels} pixels in {classes} classes; `nnp train mlp` takes any")
        if classes < CLASSES:
            sets = replace(sets, test=replace(sets.test, classes=dataset.names(CLASSES)))
        tensors = []
        for part in sets.train.first(samples), sets.test:
            tensors += [floats(part.inputs).view(-1, *SHAPE), torch.from_numpy(part.labels.copy())]
        return cls(*tensors, sets)

    def outputs(self, net: nn.Module, **options) -> torch.Tensor:
        """Outputs of a network for the test set, float32[samples, classes]."""
        training = net.training
        net.eval()
        with torch.no_grad():
            made = torch.cat([net(part, **options) for part in self.test_x.split(MEASURED)])
        net.train(training)
        return made

    def accuracy(self, net: nn.Module) -> float:
        """Share of the test set that a network classifies correctly."""
        return share(self.outputs(net).argmax(1), self.test_labels)


def trained(
    network: str, images: Images, seed: int, epochs: int, folder: Path | None, progress: Progress = silent
) -> nn.Module:
    """The FP32 network in evaluation mode, from `folder` if it has been trained before.

    Raises:
        ValueError: there is no network of that name.
    """
    net = build(network, seed)
    path = folder / f"{network}-{len(images.x)}-{epochs}-{seed}.safetensors" if folder else None
    if path and path.exists():
        fp32_file.load(net, path)
        return net.eval()
    net.train().to(memory_format=torch.channels_last)  # where convolutions are twice as fast
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    fit(phase="FP32 training", net=net, loss=lambda index: cross_entropy(net(images.x[index]), images.labels[index]),
        accuracy=lambda: images.accuracy(net), optimiser=optimiser, count=len(images.x), batch=BATCH, epochs=epochs,
        seed=seed, progress=progress)
    net.to(memory_format=torch.contiguous_format)
    if path:
        fp32_file.save(net, path)
    return net.eval()
