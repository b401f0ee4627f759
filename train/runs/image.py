"""Image classifiers: FP32, then PTQ-initialised QAT, then training in the machine's own arithmetic.

Source: S0; numerics.md of the specification, integer mode, items 4 to 8.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from concord.net.model import Model
from concord.net.quantize.choices import BlockRecipe
from concord.net.quantize.recipe import Recipe
from concord.train.lib import data, networks
from concord.train.lib.data import PIXELS
from concord.train.lib.export import finish, floats
from concord.train.lib.fit import Progress, check_epochs, cross_entropy, fit, reproducible, share, silent
from concord.train.lib.networks import CLASSES, SHAPE, build
from concord.train.network.quantized_network import behind_quantizers, check
from concord.train.network.stages import in_stages
from concord.train.overflow.options import ANY_WIDTH, OverflowOptions
from concord.train.overflow.predictor import settled, words_of
from concord.train.runs.qat_training import train_quantized
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
        sets = data.sized(data.image_sets(folder), SHAPE, CLASSES, folder)
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
        networks.load(net, path)
        return net.eval()
    net.train().to(memory_format=torch.channels_last)  # where convolutions are twice as fast
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    fit(phase="FP32 training", net=net, loss=lambda index: cross_entropy(net(images.x[index]), images.labels[index]),
        accuracy=lambda: images.accuracy(net), optimiser=optimiser, count=len(images.x), batch=BATCH, epochs=epochs,
        seed=seed, progress=progress)
    net.to(memory_format=torch.contiguous_format)
    if path:
        networks.save(net, path)
    return net.eval()


#: Recipe with all layers in 4 bits, from PTQ.
W4A4 = Recipe()


def train_image(
    out: Path,
    *,
    network: str = "resnet",
    recipe: Recipe | BlockRecipe = W4A4,
    seed: int = 0,
    folder: Path | None = None,
    epochs: tuple[int, int, int] = (8, 4, 1),
    overflow: OverflowOptions = ANY_WIDTH,
    samples: int | None = None,
    fp32: Path | None = None,
    command: str = "nnp train image",
    progress: Progress = silent,
) -> Model:
    """Train a network on images, quantise it, and write the model.

    Args:
        network: A name in `networks.NETWORKS`, or module:callable.
        recipe:  How the network is quantised.
        epochs:  Epochs of FP32 training, of QAT, and of QAT in the machine's arithmetic.
        fp32:    File to which the parameters of the FP32 network are written, or None.
        Others:  See `train.runs.mlp.train_mlp`.

    Raises:
        Unsupported: an operation of the network cannot be quantised.
        ValueError: the data are missing, a value left the range of binary16, a method cannot do a width, or a sum
            cannot be made to fit.
    """
    check_epochs(epochs)
    overflow.check(integers=isinstance(recipe, Recipe))
    reproducible(seed)
    check(build(network, seed), SHAPE, recipe, CLASSES)
    images = Images.load(samples or 60_000, folder)
    net = trained(network, images, seed, epochs[0], None, progress)
    if fp32:
        networks.save(net, fp32)
    quantized = behind_quantizers(net, images.x[:CALIBRATION], recipe, progress=progress, machine=True)
    predictor = settled(quantized, images.x[:CALIBRATION], overflow, progress)

    def phase(lowered: bool, rate: float, count: int, name: str = ""):
        train_quantized(
            quantized, lambda index: cross_entropy(quantized(images.x[index], lowered=lowered), images.labels[index]),
            len(images.x), lowered=lowered, rate=rate, epochs=count, batch=BATCH, seed=seed, progress=progress,
            predictor=predictor, name=name,
            accuracy=lambda: share(images.outputs(quantized, lowered=lowered).argmax(1), images.test_labels))

    rate = predictor.rate(0.01) if predictor else 0.01
    count = in_stages(quantized, images.x[:CALIBRATION], epochs[1],
                      lambda name, count: phase(False, rate, count, name), progress)
    real = images.outputs(quantized)
    phase(True, rate / 10, epochs[2])
    layers, sources = quantized.lower()
    return finish(
        out,
        layers,
        images.sets.test,
        sources=sources,
        data=images.sets.name,
        preprocessing=PIXELS.format(math.prod(SHAPE)),
        fp32=images.outputs(net),
        quantized=real,
        lowered=images.outputs(quantized, lowered=True),
        seed=seed,
        command=command,
        method=f"{network}: FP32, {epochs[0]} epochs of SGD; {recipe}; {count} epochs of QAT; {epochs[2]} epochs "
               "more in the machine's arithmetic" + words_of(predictor),
    )
