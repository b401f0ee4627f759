"""Multi-layer perceptrons: FP32, then PTQ-initialised QAT, then training in the machine's own arithmetic.

Source: S0; numerics.md of the specification, integer mode, items 4 to 8.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from golden import block_lowering, dataset, lowering, network
from golden.layers import Activation
from golden.model import Model, Provenance
from golden.model_file import save_model
from spec.formats import Format
from train import data, ptq
from train.fit import Progress, cross_entropy, fit, reproducible, share, silent
from train.straight_through import Codes, Round, binary16, exact_matmul

FOUR_BITS = Format(bits=4, symmetric=True)
#: Learning rate of the saturations and offsets, as a share of that of the weights.
QUANTISER_RATE = 0.1


def floats(bits: np.ndarray) -> torch.Tensor:
    """Binary16 patterns as float32."""
    return torch.from_numpy(bits.view(np.float16).astype(np.float32))


class Float(nn.Sequential):
    """The FP32 network: linear layers with a relu between them."""

    def __init__(self, sizes: Sequence[int]):
        linear = [nn.Linear(i, o) for i, o in zip(sizes, sizes[1:], strict=False)]
        super().__init__(*[part for layer in linear for part in (layer, nn.ReLU())][:-1])

    @property
    def linear(self) -> list[nn.Linear]:
        return [part for part in self if isinstance(part, nn.Linear)]


class QuantisedLinear(nn.Module):
    """A dense layer and the quantiser in front of it: WRPN weights with an adjusted start, a learned scale for each row.

    Args:
        linear:         The FP32 layer.
        inputs:         Real[samples, inputs], its inputs on a calibration set.
        weights_format: Of the weights.
        input_format:   Of the unsigned input codes.
        unrounded:      Start from the FP32 weights over their scale, not from the integers: the same network at first,
            but small gradients move it sooner.
    """

    def __init__(self, linear, inputs, weights_format: Format, input_format: Format, unrounded: bool):
        super().__init__()
        self.weights_format, self.input_format = weights_format, input_format
        weights = linear.weight.detach().double().numpy()
        codes, scales = ptq.mmse(weights, weights_format)
        saturation, offset = ptq.saturation(inputs.numpy(), input_format.levels)
        fraction = np.clip(weights / scales[:, None] - codes, -0.499, 0.499) if unrounded else 0.0
        self.half = 2.0 ** (weights_format.bits - 1)
        self.weight = nn.Parameter(torch.from_numpy((codes + fraction) / self.half).float())
        # A scale is its PTQ value times 1 + change, so that one learning rate suits scales of any size.
        self.register_buffer("scale", torch.from_numpy(scales))
        self.change = nn.Parameter(torch.zeros(len(scales)))
        self.constant = nn.Parameter(linear.bias.detach().clone())
        self.saturation = nn.Parameter(torch.tensor(saturation, dtype=torch.float32))
        self.offset = nn.Parameter(torch.tensor(offset, dtype=torch.float32))

    @property
    def step(self) -> torch.Tensor:
        """Real value of one step of the input codes."""
        return self.saturation.double() / self.input_format.levels

    @property
    def gain(self) -> torch.Tensor:
        """Real value of one step of the integer weights, for each row."""
        return self.scale * (1 + self.change.double())

    def integers(self) -> torch.Tensor:
        return Round.apply(self.weight * self.half, self.weights_format.lowest, self.weights_format.highest)

    def forward(self, y, after: "QuantisedLinear | None", lowered: bool):
        """From its input in steps of its code to the next layer's, or to real units behind the last one."""
        rounded = binary16 if lowered else torch.Tensor.float
        codes = self.integers()
        u = Codes.apply(y, self.step, self.input_format.levels)
        plain = codes.detach().numpy()
        start = lowering.start_values(plain, self.input_format, unsigned=True)
        p = lowering.places(plain, start, self.input_format, unsigned=True)
        scale, offset = lowering.requantisation(
            self.gain,
            self.constant.double(),
            codes.double().sum(1),
            s_in=self.step,
            m_in=self.offset.double(),
            s_out=after.step if after else 1.0,
            m_out=after.offset.double() if after else 0.0,
            p=p,
        )
        total = exact_matmul(u, codes, lowering.largest_sum(plain, start, self.input_format, unsigned=True)) + 0.0
        return rounded(rounded(rounded(total * 2.0**-p) * rounded(scale)) + (rounded(offset) + 0.0))


class Quantised(nn.Module):
    """The network under quantisation-aware training: in real numbers, or lowered, in the machine's arithmetic.

    Args:
        network: The FP32 network.
        images:  Real[samples, inputs], the calibration set.
        Others:  As in `QuantisedLinear`.
    """

    def __init__(self, network: Float, images, weights_format: Format, input_format: Format, unrounded: bool = True):
        super().__init__()
        layers, x = [], images
        with torch.no_grad():
            for linear in network.linear:
                layers.append(QuantisedLinear(linear, x, weights_format, input_format, unrounded))
                x = torch.relu(linear(x))
        self.layers = nn.ModuleList(layers)

    def forward(self, x, lowered: bool = False):
        rounded = binary16 if lowered else torch.Tensor.float
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
        layers = []
        for index, (layer, after) in enumerate(zip(self.layers, [*self.layers[1:], None], strict=True)):
            with torch.no_grad():
                layers.append(
                    lowering.dense(
                        name=_name(index, len(self.layers)),
                        codes=layer.integers().numpy(),
                        gain=layer.gain.numpy(),
                        constant=layer.constant.double().numpy(),
                        weights_format=layer.weights_format,
                        input_format=layer.input_format,
                        unsigned=True,
                        s_in=layer.step,
                        m_in=layer.offset,
                        s_out=after.step if after else 1.0,
                        m_out=after.offset if after else 0.0,
                        quantise_input=index == 0,
                        ranges=ranges[index],
                    )
                )
        return tuple(layers)


def train_float(images, labels, sizes: Sequence[int], *, seed: int, epochs: int, progress: Progress = silent) -> Float:
    """Train the FP32 network."""
    net = Float(sizes)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)

    def loss(index):
        return cross_entropy(net(images[index]), labels[index])

    options = {"count": len(images), "batch": 128, "epochs": epochs, "seed": seed, "progress": progress}
    fit(phase="FP32 training", loss=loss, optimiser=optimiser, **options)
    return net


def train_quantised(
    net: Quantised, images, labels, *, lowered: bool, seed: int, epochs: int, rate: float, progress: Progress = silent
):
    """Quantisation-aware training, in real numbers or lowered."""
    optimiser = torch.optim.SGD(net.groups(rate), momentum=0.9)

    def loss(index):
        return cross_entropy(net(images[index], lowered), labels[index])

    phase = "QAT, lowered" if lowered else "QAT"
    options = {"count": len(images), "batch": 128, "epochs": epochs, "seed": seed, "progress": progress}
    fit(phase=phase, loss=loss, optimiser=optimiser, after_step=net.bound, **options)


def train_mlp(
    out: Path,
    *,
    seed: int = 0,
    folder: Path | None = None,
    hidden: Sequence[int] = (128, 64),
    weights_format: Format = FOUR_BITS,
    input_format: Format = FOUR_BITS,
    block: int | None = None,
    epochs: tuple[int, int, int] = (12, 8, 2),
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
        epochs:         Of FP32 training, of QAT, and of QAT in the machine's arithmetic.
        samples:        Train on the first ones only.
        command:        Recorded in the model.
        progress:       Called as training goes on.

    Raises:
        ValueError: the data are missing, or a value left the range of binary16.
    """
    train, test = data.fashion_mnist(folder), dataset.load("fashion-mnist")
    train = train.first(samples or len(train.labels))
    reproducible(seed)
    images, labels = floats(train.inputs), torch.from_numpy(train.labels.copy())
    sizes = (images.shape[1], *hidden, len(train.classes))
    net = train_float(images, labels, sizes, seed=seed, epochs=epochs[0], progress=progress)
    calibration = images[: min(512, len(images))]
    method = f"FP32, {epochs[0]} epochs of SGD; "
    if block is None:
        qat = Quantised(net, calibration, weights_format, input_format)
        options = {"seed": seed, "progress": progress}
        train_quantised(qat, images, labels, lowered=False, epochs=epochs[1], rate=0.01, **options)
        float_outputs = outputs(qat, test)
        train_quantised(qat, images, labels, lowered=True, epochs=epochs[2], rate=0.001, **options)
        layers = qat.lower(ranges(net, calibration))
        method += (
            f"MMSE weights of {weights_format.bits} bits for each row and a search for the activations' saturation and "
            f"offset ({input_format.bits} bits) start {epochs[1]} epochs of WRPN QAT with learned scales, saturations and "
            f"offsets; the last {epochs[2]} epochs in the machine's arithmetic"
        )
    else:
        layers, float_outputs = blocks(net, weights_format, input_format, block), outputs(net, test)
        method += f"block floating point of {weights_format.bits} bits in blocks of {block}, not retrained"
    return _finish(
        out, layers, test, outputs(net, test), float_outputs, seed=seed, command=command, method=method
    )


def _finish(out, layers, test, fp32_outputs, float_outputs, *, seed, command, method) -> Model:
    """Measure the model in golden arithmetic and write it."""
    fp32, qat = (np.asarray(o.argmax(1), np.uint8) for o in (fp32_outputs, float_outputs))

    def model(golden_accuracy: float) -> Model:
        provenance = Provenance(
            command=command,
            method=method,
            seed=seed,
            fp32_accuracy=share(fp32, test.labels),
            qat_accuracy=share(qat, test.labels),
            golden_accuracy=golden_accuracy,
        )
        return Model(
            name=Path(out).stem,
            data="fashion-mnist",
            preprocessing="784 pixels, row by row, each binary16(pixel / 255)",
            classes=test.classes,
            layers=layers,
            provenance=provenance,
            fp32_predictions=fp32,
            qat_predictions=qat,
        )

    finished = model(share(network.predict(model(0.0), test.inputs), test.labels))
    save_model(finished, out)
    return finished


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


def outputs(net: nn.Module, samples: dataset.Samples) -> torch.Tensor:
    """What a network in PyTorch returns for a data set."""
    with torch.no_grad():
        return torch.cat([net(part) for part in floats(samples.inputs).split(1000)])


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
