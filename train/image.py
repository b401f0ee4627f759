"""Image classifiers on Fashion-MNIST: FP32, then PTQ-initialised QAT, then training in the machine's own arithmetic.

Source: S0; numerics.md of the specification, integer mode, items 4 to 8.
"""

from pathlib import Path

import torch

from golden import dataset
from golden.model import Model
from train.block_recipe import BlockRecipe
from train.compare import BATCH, CALIBRATION, Images, trained
from train.export import finish
from train.fit import Progress, cross_entropy, fit, reproducible, silent
from train.methods import Recipe
from train.qat.block import BlockNetwork
from train.qat.network import QuantisedNetwork

#: All layers in 4 bits, from PTQ.
W4A4 = Recipe()


def train_image(
    out: Path,
    *,
    network: str = "resnet",
    recipe: Recipe | BlockRecipe = W4A4,
    seed: int = 0,
    folder: Path | None = None,
    epochs: tuple[int, int, int] = (8, 4, 1),
    samples: int | None = None,
    command: str = "nnp train image",
    progress: Progress = silent,
) -> Model:
    """Train a network on Fashion-MNIST, quantise it, and write the model.

    Args:
        network: Of `networks.NETWORKS`.
        recipe:  How it is quantised.
        epochs:  Of FP32 training, of QAT, and of QAT in the machine's arithmetic.
        Others:  As in `train.mlp.train_mlp`.

    Raises:
        ValueError: the data are missing, a value left the range of binary16, or a method cannot do a width.
    """
    reproducible(seed)
    images = Images.load(samples or 60_000, folder)
    net = trained(network, images, seed, epochs[0], None, progress)
    kind = BlockNetwork if isinstance(recipe, BlockRecipe) else QuantisedNetwork
    quantised = kind(net, images.x[:CALIBRATION], recipe)
    for name, layer in quantised.layers.items():
        progress(f"PTQ {name}:", 1, 1, layer.lost)
    _fit(quantised, images, lowered=False, rate=0.01, epochs=epochs[1], seed=seed, progress=progress)
    real = images.outputs(quantised)
    _fit(quantised, images, lowered=True, rate=0.001, epochs=epochs[2], seed=seed, progress=progress)
    layers, sources = quantised.lower()
    return finish(
        out,
        layers,
        dataset.load("fashion-mnist"),
        sources=sources,
        data="fashion-mnist",
        preprocessing="784 pixels, row by row, each binary16(pixel / 255)",
        fp32=images.outputs(net),
        qat=real,
        lowered=images.outputs(quantised, True),
        seed=seed,
        command=command,
        method=f"{network}: FP32, {epochs[0]} epochs of SGD; {recipe}; {epochs[1]} epochs of QAT; {epochs[2]} epochs "
               "more in the machine's arithmetic",
    )


def _fit(net: QuantisedNetwork, images: Images, *, lowered: bool, rate: float, **options):
    optimiser = torch.optim.SGD(net.groups(rate), momentum=0.9)
    fit(phase="QAT, lowered" if lowered else "QAT", optimiser=optimiser, count=len(images.x), batch=BATCH,
        loss=lambda index: cross_entropy(net(images.x[index], lowered), images.labels[index]), after_step=net.bound,
        **options)
