"""Accuracy against epoch for ways to start quantisation-aware training.

Source: S0.e, figure 11.
"""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from concord.model import dataset
from concord.train.lib import data
from concord.train.lib.export import floats
from concord.train.lib.factory import build
from concord.train.lib.fit import Progress, cross_entropy, fit, share, silent
from concord.train.lib.methods import ActivationMethod, Methods, Recipe, Start, WeightMethod
from concord.train.lib.networks import CLASSES, SHAPE
from concord.train.qat.network import QuantisedNetwork
from safetensors.torch import load_file, save_file
from torch import nn

#: Ways to start, by the name that a picture gives them.
STARTS = {
    "FP32": {"start": Start.FP32},
    "min-max": {"methods": Methods(weights=WeightMethod.UNIFORM, activations=ActivationMethod.UNIFORM)},
    "PTQ": {},
}
CALIBRATION, BATCH, MEASURED = 256, 50, 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A network and its bits, None for FP32.

    Attributes:
        network: As `factory.build` knows it.
        weights: Bits; where they are None, FP32 weights stay as they are.
        inputs:  Bits.
    """

    network: str
    weights: int | None
    inputs: int | None

    def __str__(self):
        return f"{self.network} W{self.weights or 32}/A{self.inputs or 32}"

    def recipe(self, **options) -> Recipe:
        """Quantise all layers alike."""
        return Recipe(weights_bits=self.weights, input_bits=self.inputs, frozen=self.weights is None, **options)


FIGURE = tuple(
    Setting(network=network, weights=weights, inputs=inputs) for network, weights, inputs in (
        ("resnet", 4, None), ("resnet", 4, 4), ("mobilenet", 4, None), ("mobilenet", None, 4), ("mobilenet", 4, 4),
        ("inception", 4, None), ("inception", 4, 4)))


@dataclass(frozen=True, slots=True)
class Images:
    """Images of 28 x 28 pixels in ten classes.

    Attributes:
        x, labels:           float32[samples, 1, 28, 28] to train on, and their classes.
        test_x, test_labels: The test set.
        sets:                Where they come from, if they were loaded.
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

    def outputs(self, net: nn.Module, *options) -> torch.Tensor:
        """float32[samples, classes] for the test set."""
        training = net.training
        net.eval()
        with torch.no_grad():
            made = torch.cat([net(part, *options) for part in self.test_x.split(MEASURED)])
        net.train(training)
        return made

    def accuracy(self, net: nn.Module) -> float:
        """On the test set."""
        return share(self.outputs(net).argmax(1), self.test_labels)


def trained(
    network: str, images: Images, seed: int, epochs: int, folder: Path | None, progress: Progress = silent
) -> nn.Module:
    """The FP32 network, in evaluation; read from `folder` where it has been trained before.

    Raises:
        ValueError: there is no network of that name.
    """
    net = build(network, seed)
    path = folder / f"{network}-{len(images.x)}-{epochs}-{seed}.safetensors" if folder else None
    if path and path.exists():
        net.load_state_dict(load_file(path))
        return net.eval()
    net.train().to(memory_format=torch.channels_last)  # where convolutions are twice as fast
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    fit(phase="FP32 training", net=net, loss=lambda index: cross_entropy(net(images.x[index]), images.labels[index]),
        accuracy=lambda: images.accuracy(net), optimiser=optimiser, count=len(images.x), batch=BATCH, epochs=epochs,
        seed=seed, progress=progress)
    net.to(memory_format=torch.contiguous_format)
    if path:
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        save_file(net.state_dict(), part)
        part.replace(path)
    return net.eval()


def curve(net: nn.Module, recipe: Recipe, images: Images, seed: int, epochs: int, rate: float = 0.01,
          progress: Progress = silent) -> list[float]:
    """Accuracy before quantisation-aware training, and after each epoch of it."""
    quantised = QuantisedNetwork(net, images.x[:CALIBRATION], recipe)
    return followed(quantised, quantised.groups(rate), images, seed, epochs, rate, progress, quantised.bound)


def followed(net: nn.Module, groups: Iterable, images: Images, seed: int, epochs: int, rate: float = 0.01,
             progress: Progress = silent, after_step: Callable[[], None] = lambda: None) -> list[float]:
    """Accuracy of a network before it is trained, and after each epoch."""
    found = [images.accuracy(net)]
    optimiser = torch.optim.SGD(groups, lr=rate, momentum=0.9)
    fit(phase="QAT", net=net, loss=lambda index: cross_entropy(net(images.x[index]), images.labels[index]),
        optimiser=optimiser, count=len(images.x), batch=BATCH, epochs=epochs, seed=seed, progress=progress,
        after_step=after_step, after_epoch=lambda: found.append(images.accuracy(net)))
    return found


def band(curves: Sequence[Sequence[float]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean over seeds, and half of the interval that holds it with 95 % confidence (Student's t)."""
    curves = np.asarray(curves, np.float64)
    count = len(curves)
    student = {1: 0.0, 2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}.get(count, 1.96 + 2.4 / max(count, 1))
    spread = curves.std(axis=0, ddof=1) if count > 1 else np.zeros(curves.shape[1])
    return curves.mean(axis=0), student * spread / np.sqrt(count)
