"""Multi-layer perceptrons: FP32, then PTQ-initialised QAT, then training in the machine's own arithmetic.

Source: S0; numerics.md of the specification, integer mode, items 4 to 8.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from concord.datasets.samples import Samples
from concord.net.lowering import block_lowering
from concord.net.model import Model
from concord.net.quantize.recipe import Methods, Recipe
from concord.net.quantize.stages import stages_of
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format
from concord.train.lib import data
from concord.train.lib.export import finish, floats
from concord.train.lib.fit import Progress, cross_entropy, fit, reproducible, share, silent
from concord.train.network.quantized_network import QuantizedNetwork, behind_quantizers
from concord.train.network.stages import in_stages
from concord.train.overflow.options import ANY_WIDTH, OverflowOptions
from concord.train.overflow.predictor import settled, words_of
from concord.train.runs.qat_training import train_quantized
from torch import nn

FOUR_BITS = Format(bits=4, symmetric=True)
MMSE = Methods()
CALIBRATION, BATCH = 512, 128


class Float(nn.Sequential):
    """The FP32 network: linear layers with a relu between them, named as the layers of the model."""

    def __init__(self, sizes: Sequence[int]):
        names = [f"hidden{index}" for index in range(1, len(sizes) - 1)] + ["output"]
        parts = OrderedDict()
        for name, *size in zip(names, sizes, sizes[1:], strict=False):
            parts |= {name: nn.Linear(*size), f"relu_{name}": nn.ReLU()}
        parts.popitem()
        super().__init__(parts)

    @property
    def linear(self) -> dict[str, nn.Linear]:
        """The linear layers by name."""
        return {name: part for name, part in self.named_children() if isinstance(part, nn.Linear)}


def recipe(weights_format: Format, input_format: Format, methods: Methods = MMSE) -> Recipe:
    """WRPN weights and learned saturations and offsets, in these formats."""
    return Recipe(weights_bits=weights_format.bits, input_bits=input_format.bits, methods=methods,
                  symmetric=(weights_format.symmetric, input_format.symmetric))


def train_float(images, labels, sizes: Sequence[int], *, seed: int, epochs: int, progress: Progress = silent) -> Float:
    """Train the FP32 network."""
    net = Float(sizes)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)

    def loss(index):
        return cross_entropy(net(images[index]), labels[index])

    options = {"count": len(images), "batch": BATCH, "epochs": epochs, "seed": seed, "progress": progress}
    fit(phase="FP32 training", net=net, loss=loss, optimiser=optimiser, **options)
    return net


def train_mlp(
    out: Path,
    *,
    seed: int = 0,
    folder: Path | None = None,
    hidden: Sequence[int] = (128, 64),
    weights_format: Format = FOUR_BITS,
    input_format: Format = FOUR_BITS,
    block: int | None = None,
    methods: Methods = MMSE,
    epochs: tuple[int, int, int] = (20, 8, 2),
    overflow: OverflowOptions = ANY_WIDTH,
    stages: str = "",
    samples: int | None = None,
    command: str = "nnp train mlp",
    progress: Progress = silent,
) -> Model:
    """Train an MLP on images, quantise it, and write the model.

    Args:
        out:            The model file.
        seed:           Seed of every random choice.
        folder:         Folder of training and test images; Fashion-MNIST by default.
        hidden:         Sizes of the hidden layers.
        weights_format: Format of the weights.
        input_format:   Format of the activations.
        block:          None for integer mode; else the native dimension for block floating point, without retraining.
        methods:        How the FP32 network is quantised before QAT.
        epochs:         Epochs of FP32 training, of QAT, and of QAT in the machine's arithmetic.
        overflow:       Widths of the machine's storage: ranges follow the overflows of serial sums on the calibration
            set, after PTQ and after each epoch of QAT, so that none is left.
        stages:         Stages of QAT, see `net.quantize.options.QuantizationOptions`.
        samples:        Number of training samples to use, the first ones; None for all.
        command:        Command line that the model records.
        progress:       Shows steps of training.

    Raises:
        ValueError: the data are missing, a value left the range of binary16, or a sum cannot be made to fit.
    """
    overflow.check(integers=block is None, staged=bool(stages))
    sets = data.image_sets(folder)
    train, test = sets.train.first(samples or len(sets.train)), sets.test
    reproducible(seed)
    images, labels = floats(train.inputs), torch.from_numpy(train.labels.copy())
    sizes = (images.shape[1], *hidden, len(train.classes))
    net = train_float(images, labels, sizes, seed=seed, epochs=epochs[0], progress=progress)
    fp32 = _outputs(net, floats(test.inputs))
    if block is None:
        chosen = replace(recipe(weights_format, input_format, methods), stages=stages_of(stages))
        qat = behind_quantizers(net, images[:CALIBRATION], chosen, progress=progress, machine=True)
        real, lowered, words = _train_integers(
            qat, images, labels, test, overflow, seed=seed, epochs=epochs[1:], progress=progress)
        layers, _ = qat.lower()
    else:
        layers, real, lowered = blocks(net, weights_format, input_format, block), fp32, None
        words = f"block floating point of {weights_format.bits} bits in blocks of {block}, not retrained"
    return finish(
        out,
        layers,
        test,
        data=sets.name,
        preprocessing=data.PIXELS.format(images.shape[1]),
        fp32=fp32,
        quantized=real,
        lowered=lowered,
        seed=seed,
        command=command,
        method=f"FP32, {epochs[0]} epochs of SGD; {words}",
    )


def _train_integers(
    qat: QuantizedNetwork, images, labels, test: Samples, overflow: OverflowOptions, *, seed: int,
    epochs: tuple[int, int], progress: Progress,
) -> tuple[torch.Tensor, torch.Tensor, str]:
    """Train with quantisers; return the outputs for a test set in real numbers and lowered, and the method in words."""
    x = floats(test.inputs)
    predictor = settled(qat, images[:CALIBRATION], overflow, progress)

    def phase(lowered: bool, rate: float, count: int, name: str = ""):
        train_quantized(qat, lambda index: cross_entropy(qat(images[index], lowered=lowered), labels[index]),
                        len(images), lowered=lowered, epochs=count, rate=rate, batch=BATCH, seed=seed,
                        progress=progress, predictor=predictor, name=name,
                        accuracy=(lambda: share(_outputs(qat, x).argmax(1), test.labels)) if name else None)

    count = in_stages(qat, images[:CALIBRATION], epochs[0],
                      lambda name, count: phase(False, 0.01, count, name), progress)
    real = _outputs(qat, x)
    phase(True, 0.001, epochs[1])
    words = (f"{qat.recipe}; {count} epochs of QAT; {epochs[1]} epochs more in the machine's arithmetic"
             + words_of(predictor))
    return real, _outputs(qat, x, lowered=True), words


def _outputs(net: nn.Module, x, **mode: bool) -> torch.Tensor:
    with torch.no_grad():
        return net(x, **mode)


def blocks(net: Float, weights_format: Format, input_format: Format, block: int) -> tuple:
    """The FP32 network in block floating point."""
    return tuple(
        block_lowering.block_dense(
            name=name,
            weights=layer.weight.detach().numpy(),
            bias=layer.bias.detach().numpy(),
            weights_format=weights_format,
            input_format=input_format,
            block=block,
            activation=Activation.NONE if name == "output" else Activation.RELU,
        )
        for name, layer in net.linear.items()
    )
