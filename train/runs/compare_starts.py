"""Accuracy against epoch for ways to start quantisation-aware training, over seeds.

Source: S0.e, figure 11.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from concord.net.quantize.recipe import ActivationMethod, Methods, Recipe, Start, WeightMethod
from concord.train.lib.fit import Progress, cross_entropy, fit, reproducible, silent
from concord.train.lib.networks import CLASSES, SHAPE, build
from concord.train.network.quantized_network import behind_quantizers, check
from concord.train.runs.image import BATCH, CALIBRATION, Images, trained
from torch import nn

#: Options of the recipe for each way to start, by its name in pictures.
STARTS = {
    "FP32": {"start": Start.FP32},
    "min-max": {"methods": Methods(weights=WeightMethod.UNIFORM, activations=ActivationMethod.UNIFORM)},
    "PTQ": {},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A network and its bits, None for FP32.

    Attributes:
        network: Name of the network for `train.lib.networks.build`.
        weights: Bits of weights. FP32 weights, None, are not trained.
        inputs:  Bits of inputs.
    """

    network: str
    weights: int | None
    inputs: int | None

    def __str__(self):
        return f"{self.network} W{self.weights or 32}/A{self.inputs or 32}"

    def recipe(self, **options) -> Recipe:
        """The recipe that quantises all layers alike."""
        return Recipe(weights_bits=self.weights, input_bits=self.inputs, frozen=self.weights is None, **options)


FIGURE = tuple(
    Setting(network=network, weights=weights, inputs=inputs) for network, weights, inputs in (
        ("resnet", 4, None), ("resnet", 4, 4), ("mobilenet", 4, None), ("mobilenet", None, 4), ("mobilenet", 4, 4),
        ("inception", 4, None), ("inception", 4, 4)))


def recipes(setting: Setting, **options) -> dict[str, Recipe]:
    """The recipe of a setting for each way to start.

    Args:
        setting: Network and bits.
        options: Options of the recipes that are the same for all starts.

    Raises:
        ValueError: the network cannot be quantised, or a method cannot do a width.
    """
    made = {name: setting.recipe(**options, **start) for name, start in STARTS.items()}
    for recipe in made.values():
        check(build(setting.network), SHAPE, recipe, CLASSES, machine=False)
    return made


def curves(
    network: str, ways: Mapping[str, Recipe], images: Images, *, seeds: int, fp32_epochs: int, epochs: int,
    progress: Progress = silent,
) -> tuple[list[float], dict[str, list[list[float]]]]:
    """Accuracies in percent: of the FP32 network by seed, and by way and seed before training and after each epoch.

    Args:
        ways:        Recipes by name.
        fp32_epochs: Epochs of FP32 training.
        epochs:      Epochs of quantisation-aware training.
    """
    real, found = [], {name: [] for name in ways}
    for seed in range(seeds):
        reproducible(seed)
        net = trained(network, images, seed, fp32_epochs, None, _named(progress, f"seed {seed}, FP32"))
        real.append(100 * images.accuracy(net))
        for name, recipe in ways.items():
            shown = _named(progress, f"seed {seed}, from {name}")
            found[name].append([100 * value for value in curve(net, recipe, images, seed, epochs, progress=shown)])
    return real, found


def curve(net: nn.Module, recipe: Recipe, images: Images, seed: int, epochs: int, rate: float = 0.01,
          progress: Progress = silent) -> list[float]:
    """Accuracy before quantisation-aware training, and after each epoch of it."""
    quantized = behind_quantizers(net, images.x[:CALIBRATION], recipe)
    return followed(quantized, quantized.groups(rate), images, seed, epochs, rate, progress, quantized.bound)


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
    known = {1: 0.0, 2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
    free = count - 1  # degrees of freedom; the quantile in powers of their reciprocal (Cornish and Fisher)
    student = known[count] if count in known else 1.96 + 2.372 / free + 2.823 / free**2 + 2.556 / free**3
    spread = curves.std(axis=0, ddof=1) if count > 1 else np.zeros(curves.shape[1])
    return curves.mean(axis=0), student * spread / np.sqrt(count)


def _named(progress: Progress, name: str) -> Progress:
    """Progress that shows every phase under one name."""
    return lambda _, *rest: progress(name, *rest)
