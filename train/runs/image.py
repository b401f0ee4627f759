"""Image classifiers on Fashion-MNIST: FP32, then PTQ-initialised QAT, then training in the machine's own arithmetic.

Source: S0; numerics.md of the specification, integer mode, items 4 to 8.
"""

import math
from pathlib import Path

from concord.net.layer_overflow import Widths
from concord.net.model import Model
from concord.net.quantize.choices import BlockRecipe
from concord.net.quantize.recipe import Recipe
from concord.train.lib import fp32_file
from concord.train.lib.data import PIXELS
from concord.train.lib.export import finish
from concord.train.lib.factory import build
from concord.train.lib.fit import Progress, check_epochs, cross_entropy, reproducible, share, silent
from concord.train.lib.networks import CLASSES, SHAPE
from concord.train.network.quantized_network import behind_quantizers, check
from concord.train.overflow.predictor import settled
from concord.train.runs.image_training import BATCH, CALIBRATION, Images, trained
from concord.train.runs.qat_training import train_quantized

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
    accumulator: int | None = None,
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
    widths = None if accumulator is None else Widths(sum_bits=accumulator)
    reproducible(seed)
    check(build(network, seed), SHAPE, recipe, CLASSES)
    images = Images.load(samples or 60_000, folder)
    net = trained(network, images, seed, epochs[0], None, progress)
    if fp32:
        fp32_file.save(net, fp32)
    quantized = behind_quantizers(net, images.x[:CALIBRATION], recipe, progress=progress, machine=True)
    predictor = None
    if widths is not None:
        predictor = settled(quantized, images.x[:CALIBRATION], widths, progress)

    def phase(lowered: bool, rate: float, count: int):
        train_quantized(
            quantized, lambda index: cross_entropy(quantized(images.x[index], lowered=lowered), images.labels[index]),
            len(images.x), lowered=lowered, rate=rate, epochs=count, batch=BATCH, seed=seed, progress=progress,
            predictor=predictor,
            accuracy=lambda: share(images.outputs(quantized, lowered=lowered).argmax(1), images.test_labels))

    rate = predictor.rate(0.01) if predictor else 0.01
    phase(False, rate, epochs[1])
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
        method=f"{network}: FP32, {epochs[0]} epochs of SGD; {recipe}; {epochs[1]} epochs of QAT; {epochs[2]} epochs "
               "more in the machine's arithmetic" + (f"; {predictor.record}" if predictor else ""),
    )
