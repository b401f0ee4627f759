"""Multi-layer perceptrons: FP32, then PTQ-initialised QAT, then training in the machine's own arithmetic.

Source: S0; numerics.md of the specification, integer mode, items 4 to 8.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from golden import block_lowering, dataset
from golden.layer_overflow import Widths
from golden.layers import Activation
from golden.model import Model
from spec.formats import Format
from train import data
from train.dense import MMSE, QuantisedLinear
from train.export import finish, floats
from train.fit import Progress, cross_entropy, fit, reproducible, silent
from train.methods import Methods
from train.overflow.defaults import STEPS, NetworkKind
from train.overflow.predictor import Predictor
from train.straight_through import binary16, plain

FOUR_BITS = Format(bits=4, symmetric=True)
#: Learning rate of the saturations and offsets, as a share of that of the weights.
QUANTISER_RATE = 0.1


class Float(nn.Sequential):
    """The FP32 network: linear layers with a relu between them."""

    def __init__(self, sizes: Sequence[int]):
        linear = [nn.Linear(i, o) for i, o in zip(sizes, sizes[1:], strict=False)]
        super().__init__(*[part for layer in linear for part in (layer, nn.ReLU())][:-1])

    @property
    def linear(self) -> list[nn.Linear]:
        return [part for part in self if isinstance(part, nn.Linear)]


class Quantised(nn.Module):
    """The network under quantisation-aware training: in real numbers, or lowered, in the machine's arithmetic.

    Args:
        network: The FP32 network.
        images:  Real[samples, inputs], the calibration set.
        Others:  As in `QuantisedLinear`.
    """

    def __init__(
        self,
        network: Float,
        images,
        weights_format: Format,
        input_format: Format,
        unrounded: bool = True,
        methods: Methods = MMSE,
    ):
        super().__init__()
        layers, x = [], images
        with torch.no_grad():
            for linear in network.linear:
                layers.append(QuantisedLinear(linear, x, weights_format, input_format, unrounded, methods))
                x = torch.relu(linear(x))
        self.layers = nn.ModuleList(layers)

    def forward(self, x, lowered: bool = False):
        rounded = binary16 if lowered else plain
        first = self.layers[0]
        y = rounded(x * rounded(1 / first.step))
        if not lowered or first.offset != 0:
            y = rounded(y + rounded(-first.offset.double() / first.step))
        for layer, after in zip(self.layers, [*self.layers[1:], None], strict=True):
            y = layer(y, after, lowered)
        return y

    def bound(self):
        """Keep the parameters legal: offsets at 0 or more, since the clip at 0 is the relu, and saturations above 0."""
        with torch.no_grad():
            for layer in self.layers:
                layer.offset.clamp_(min=0)
                layer.saturation.clamp_(min=1e-3)

    def groups(self, rate: float) -> list[dict]:
        """Parameters with their learning rates."""
        slow = [p for layer in self.layers for p in (layer.saturation, layer.offset)]
        fast = [p for layer in self.layers for p in (layer.weight, layer.change, layer.constant)]
        return [{"params": fast, "lr": rate}, {"params": slow, "lr": rate * QUANTISER_RATE}]

    def lower(self, ranges: Sequence[dict]) -> tuple:
        """The layers of the quantised model."""
        count = len(self.layers)
        return tuple(
            layer.lower(_name(index, count), after, quantise_input=index == 0, ranges=ranges[index])
            for index, (layer, after) in enumerate(zip(self.layers, [*self.layers[1:], None], strict=True))
        )


def train_float(images, labels, sizes: Sequence[int], *, seed: int, epochs: int, progress: Progress = silent) -> Float:
    """Train the FP32 network."""
    net = Float(sizes)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)

    def loss(index):
        return cross_entropy(net(images[index]), labels[index])

    options = {"count": len(images), "batch": 128, "epochs": epochs, "seed": seed, "progress": progress}
    fit(phase="FP32 training", net=net, loss=loss, optimiser=optimiser, **options)
    return net


def train_quantised(
    net: Quantised, images, labels, *, lowered: bool, seed: int, epochs: int, rate: float, progress: Progress = silent,
    predictor: Predictor | None = None,
):
    """Quantisation-aware training, in real numbers or lowered; a predictor changes the ranges of its layers."""
    optimiser = torch.optim.SGD(net.groups(rate), momentum=0.9)

    def loss(index):
        return cross_entropy(net(images[index], lowered), labels[index])

    phase = "QAT, lowered" if lowered else "QAT"
    options = {"count": len(images), "batch": 128, "epochs": epochs, "seed": seed, "progress": progress}
    if predictor:
        options |= {"after_epoch": predictor.run, "also": {"predictor": predictor}}
    fit(phase=phase, net=net, loss=loss, optimiser=optimiser, after_step=net.bound, **options)


def overflow_predictor(net: Quantised, images, widths: Widths, *, rows: bool = True) -> Predictor:
    """What keeps the sums of a network in their accumulators; each row has a factor of its own if `rows`."""
    names = [_name(index, len(net.layers)) for index in range(len(net.layers))]
    return Predictor(net, net.layers, names, images, widths, replace(STEPS[NetworkKind.DNN], rows=rows))


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
    accumulator: int | None = None,
    samples: int | None = None,
    command: str = "nnp train mlp",
    progress: Progress = silent,
) -> Model:
    """Train an MLP on Fashion-MNIST, quantise it, and write the model.

    Args:
        out:            The model file.
        seed:           Of every random choice.
        folder:         Of the training images; that of Debian's package by default.
        hidden:         Sizes of the hidden layers.
        weights_format: Of the weights.
        input_format:   Of the activations.
        block:          None for integer mode; else the native dimension for block floating point, without retraining.
        methods:        How the FP32 network is quantised before QAT.
        epochs:         Of FP32 training, of QAT, and of QAT in the machine's arithmetic.
        accumulator:    Bits of the machine's accumulator: ranges follow the overflows of serial sums on the calibration
            set, after PTQ and after each epoch of QAT, so that none is left. None counts nothing.
        samples:        Train on the first ones only.
        command:        Recorded in the model.
        progress:       Called as training goes on.

    Raises:
        ValueError: the data are missing, a value left the range of binary16, or a sum cannot be made to fit.
    """
    if accumulator is not None and block is not None:
        raise ValueError(f"an accumulator of {accumulator} bits is for integer mode; leave out the block or the bits")
    widths = None if accumulator is None else Widths(sum_bits=accumulator)
    train, test = data.fashion_mnist(folder), dataset.load("fashion-mnist")
    train = train.first(samples or len(train.labels))
    reproducible(seed)
    images, labels = floats(train.inputs), torch.from_numpy(train.labels.copy())
    sizes = (images.shape[1], *hidden, len(train.classes))
    net = train_float(images, labels, sizes, seed=seed, epochs=epochs[0], progress=progress)
    calibration = images[:512]
    method = f"FP32, {epochs[0]} epochs of SGD; "
    x = floats(test.inputs)
    with torch.no_grad():
        fp32 = net(x)
    lowered = None
    if block is None:
        qat = Quantised(net, calibration, weights_format, input_format, methods=methods)
        for index, layer in enumerate(qat.layers):
            progress(f"PTQ {_name(index, len(qat.layers))}:", 1, 1, layer.lost)
        options = {"seed": seed, "progress": progress}
        if widths is not None:
            predictor = overflow_predictor(qat, calibration, widths, rows=not methods.tensor)
            for layer in predictor.run().layers:
                progress(f"overflow {layer.name}:", 1, 1, str(layer))
            options["predictor"] = predictor
        train_quantised(qat, images, labels, lowered=False, epochs=epochs[1], rate=0.01, **options)
        with torch.no_grad():
            real = qat(x)
        train_quantised(qat, images, labels, lowered=True, epochs=epochs[2], rate=0.001, **options)
        with torch.no_grad():
            lowered = qat(x, lowered=True)
        layers = qat.lower(ranges(net, calibration))
        method += (
            f"weights of {weights_format.bits} bits by {methods.weights} for each "
            f"{'tensor' if methods.tensor else 'row'}, saturation and offset of activations of {input_format.bits} "
            f"bits by {methods.activations}; {epochs[1]} epochs of WRPN QAT with learned scales, saturations "
            f"and offsets; {epochs[2]} epochs more in the machine's arithmetic"
        )
        if widths is not None:
            method += f"; {predictor.record}"
    else:
        layers, real = blocks(net, weights_format, input_format, block), fp32
        method += f"block floating point of {weights_format.bits} bits in blocks of {block}, not retrained"
    return finish(
        out,
        layers,
        test,
        data="fashion-mnist",
        preprocessing="784 pixels, row by row, each binary16(pixel / 255)",
        fp32=fp32,
        qat=real,
        lowered=lowered,
        seed=seed,
        command=command,
        method=method,
    )


def blocks(net: Float, weights_format: Format, input_format: Format, block: int) -> tuple:
    """The FP32 network in block floating point."""
    linear = net.linear
    return tuple(
        block_lowering.block_dense(
            name=_name(index, len(linear)),
            weights=layer.weight.detach().numpy(),
            bias=layer.bias.detach().numpy(),
            weights_format=weights_format,
            input_format=input_format,
            block=block,
            activation=Activation.NONE if index == len(linear) - 1 else Activation.RELU,
        )
        for index, layer in enumerate(linear)
    )


def ranges(net: Float, images) -> list[dict]:
    """Smallest and largest input and output of each linear layer."""
    found, x = [], images
    with torch.no_grad():
        for layer in net.linear:
            y = layer(x)
            found.append({name: (float(v.min()), float(v.max())) for name, v in (("input", x), ("output", y))})
            x = torch.relu(y)
    return found


def _name(index: int, count: int) -> str:
    return "output" if index == count - 1 else f"hidden{index + 1}"
