"""LSTM classifiers: FP32, then 8-bit integers for each gate, then training in the machine's own arithmetic.

Source: S1, symmetric; numerics.md of the specification, LSTM.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from golden import block_lowering, dataset
from golden.model import Model
from spec.formats import Format
from train import data, ptq
from train.dense import SignedLinear
from train.export import finish, floats
from train.fit import Progress, cross_entropy, fit, reproducible, silent
from train.recurrent import FloatLSTM, QuantisedLSTM, widen

EIGHT_BITS = Format(bits=8, symmetric=True)
#: Standard deviation of the noise added to the cepstra in training.
NOISE = 0.2


class FloatClassifier(nn.Module):
    """The FP32 network: LSTM layers and a linear layer on the last hidden vector."""

    def __init__(self, inputs: int, hidden: Sequence[int], classes: int):
        super().__init__()
        sizes = (inputs, *hidden)
        self.layers = nn.ModuleList(FloatLSTM(i, o) for i, o in zip(sizes, sizes[1:], strict=False))
        self.head = nn.Linear(sizes[-1], classes)

    def forward(self, x, lengths):
        for layer in self.layers:
            x, last = layer(x, lengths)
        return self.head(last)


class QuantisedClassifier(nn.Module):
    """The network in integers: in real numbers between its quantisers, or lowered, in the machine's arithmetic.

    Args:
        net:            The FP32 network.
        x:              Real[samples, time, inputs], calibration set.
        weights_format: Of the weights.
        input_format:   Of the signed codes.
    """

    def __init__(self, net: FloatClassifier, x, weights_format: Format, input_format: Format):
        super().__init__()
        s_in = ptq.symmetric(x.numpy(), input_format)[1]
        steps = [s_in] + [2.0 ** -(input_format.bits - 1)] * (len(net.layers) - 1)
        self.layers = nn.ModuleList(
            QuantisedLSTM(layer, step, weights_format, input_format)
            for layer, step in zip(net.layers, steps, strict=True)
        )
        self.head = SignedLinear(net.head, weights_format, input_format)

    def forward(self, x, lengths, lowered: bool = False):
        for layer in self.layers:
            x, last = layer(x, lengths, lowered)
        return self.head(last, lowered)

    def groups(self, rate: float) -> list[dict]:
        """Parameters with their learning rates: weights are in steps, biases in real units."""
        weights = [p for name, p in self.named_parameters() if "weight" in name]
        others = [p for name, p in self.named_parameters() if "weight" not in name]
        return [{"params": weights, "lr": rate * 100}, {"params": others, "lr": rate}]

    def lower(self, x, lengths) -> tuple:
        """The layers of the quantised model, their ranges recorded over the samples x."""
        layers = []
        with torch.no_grad():
            for index, layer in enumerate(self.layers):
                ranges = {}
                x, last = layer(x, lengths, True, ranges)
                layers.append(layer.lower(f"lstm{index + 1}", ranges))
            ranges = {}
            widen(ranges, "input", last)
            widen(ranges, "output", self.head(last, True))
        return (*layers, self.head.lower("output", ranges))


def train_classifier(net, samples: dataset.Samples, optimiser, *, phase: str, lowered: bool | None = None, **options):
    """Train a network on sequences.

    Args:
        net:     FP32, if `lowered` is None, or quantised.
        options: seed, epochs and progress of `fit`.
    """
    x, lengths, labels = tensors(samples)
    noise = torch.Generator().manual_seed(options["seed"])
    mode = () if lowered is None else (lowered,)

    def loss(index):
        noisy = x[index] + NOISE * torch.randn(x[index].shape, generator=noise)
        return cross_entropy(net(noisy.half().float(), lengths[index], *mode), labels[index])

    fit(phase=phase, loss=loss, optimiser=optimiser, count=len(labels), batch=30, **options)


def tensors(samples: dataset.Samples) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inputs, lengths and labels."""
    return floats(samples.inputs), torch.from_numpy(samples.lengths), torch.from_numpy(samples.labels.copy())


def train_lstm(
    out: Path,
    *,
    seed: int = 0,
    folder: Path | None = None,
    hidden: Sequence[int] = (32,),
    weights_format: Format = EIGHT_BITS,
    input_format: Format = EIGHT_BITS,
    block: int | None = None,
    epochs: tuple[int, int, int] = (80, 10, 5),
    samples: int | None = None,
    command: str = "nnp train lstm",
    progress: Progress = silent,
) -> Model:
    """Train an LSTM classifier on JapaneseVowels, quantise it, and write the model.

    Args:
        folder: Of JapaneseVowels_TRAIN.ts; that of the installed package aeon by default.
        hidden: Sizes of the LSTM layers.
        Others: As in `train.mlp.train_mlp`.

    Raises:
        ValueError: the data are missing, or a value left the range of binary16.
    """
    train, test = data.japanese_vowels(folder), dataset.load("japanese-vowels")
    train = train.first(samples or len(train.labels))
    reproducible(seed)
    net = FloatClassifier(train.inputs.shape[2], hidden, len(train.classes))
    optimiser = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1)
    options = {"seed": seed, "progress": progress}
    train_classifier(net, train, optimiser, phase="FP32 training", epochs=epochs[0], **options)
    method = f"FP32, {epochs[0]} epochs of AdamW with noise on the input; "
    x, lengths, _ = tensors(test)
    with torch.no_grad():
        fp32 = net(x, lengths)
    lowered = None
    if block is None:
        calibration = tensors(train)[:2]
        qat = QuantisedClassifier(net, calibration[0], weights_format, input_format)
        optimiser = torch.optim.Adam(qat.groups(5e-4))
        train_classifier(qat, train, optimiser, phase="QAT", lowered=False, epochs=epochs[1], **options)
        with torch.no_grad():
            real = qat(x, lengths)
        optimiser = torch.optim.Adam(qat.groups(1e-4))
        train_classifier(qat, train, optimiser, phase="QAT, lowered", lowered=True, epochs=epochs[2], **options)
        with torch.no_grad():
            lowered = qat(x, lengths, True)
        layers = qat.lower(*calibration)
        method += (
            f"weights of {weights_format.bits} bits, symmetric, one scale for each matrix of each gate, x and h of "
            f"{input_format.bits} bits; {epochs[1]} epochs of QAT; {epochs[2]} epochs more in the machine's arithmetic"
        )
    else:
        layers, real = blocks(net, weights_format, input_format, block), fp32
        method += f"block floating point of {weights_format.bits} bits in blocks of {block}, not retrained"
    return finish(
        out,
        layers,
        test,
        data="japanese-vowels",
        preprocessing="one vector of 12 cepstra for each frame, each binary16(cepstrum)",
        fp32=fp32,
        qat=real,
        lowered=lowered,
        seed=seed,
        command=command,
        method=method,
    )


def blocks(net: FloatClassifier, weights_format: Format, input_format: Format, block: int) -> tuple:
    """The FP32 network in block floating point."""
    formats = {"weights_format": weights_format, "input_format": input_format, "block": block}
    with torch.no_grad():
        layers = [
            block_lowering.block_lstm(
                name=f"lstm{index + 1}",
                input_weights=layer.input_weights.numpy(),
                recurrent_weights=layer.recurrent_weights.numpy(),
                bias=layer.bias.numpy(),
                **formats,
            )
            for index, layer in enumerate(net.layers)
        ]
        weights, bias = net.head.weight.numpy(), net.head.bias.numpy()
        return (*layers, block_lowering.block_dense(name="output", weights=weights, bias=bias, **formats))
