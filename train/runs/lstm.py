"""LSTM classifiers: FP32, then integers for each gate, then training in the machine's own arithmetic.

Source: S1; numerics.md of the specification, LSTM.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from concord.model import block_lowering, dataset
from concord.model.cells.lstm import LSTM
from concord.model.model import Model
from concord.spec.formats import Format
from concord.train import ptq
from concord.train.lib import data
from concord.train.lib.export import finish, floats
from concord.train.lib.fit import Progress, check_epochs, cross_entropy, fit, reproducible, silent
from concord.train.lib.methods import Gates, InitialState
from concord.train.recurrent.hidden_linear import SignedLinear
from concord.train.recurrent.lstm import SYMMETRIC, FloatLSTM, QuantisedLSTM, initial_state, widen
from torch import nn

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
        gates:          How the weights of gates become integers.
    """

    def __init__(
        self, net: FloatClassifier, x, weights_format: Format, input_format: Format, gates: Gates = SYMMETRIC
    ):
        super().__init__()
        s_in = ptq.symmetric(x.numpy(), input_format)[1]
        steps = [s_in] + [2.0 ** -(input_format.bits - 1)] * (len(net.layers) - 1)
        self.layers = nn.ModuleList(
            QuantisedLSTM(layer, step, weights_format, input_format, gates)
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

    fit(phase=phase, net=net, loss=loss, optimiser=optimiser, count=len(labels), batch=30, noise=noise, **options)


def tensors(samples: dataset.Samples) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inputs, lengths and labels."""
    return floats(samples.inputs), torch.from_numpy(samples.lengths), torch.from_numpy(samples.labels.copy())


def train_float(
    samples: dataset.Samples,
    hidden: Sequence[int],
    *,
    epochs: int,
    seed: int,
    progress: Progress = silent,
    initial: InitialState = InitialState.ZERO,
) -> FloatClassifier:
    """Train the FP32 network."""
    reproducible(seed)
    net = FloatClassifier(samples.inputs.shape[2], hidden, len(samples.classes))
    for index, layer in enumerate(net.layers):
        layer.first.copy_(initial_state(initial, layer.first.shape, seed=(seed, index)))
    optimiser = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1)
    train_classifier(net, samples, optimiser, phase="FP32 training", epochs=epochs, seed=seed, progress=progress)
    return net


def retrain(net: QuantisedClassifier, samples: dataset.Samples, epochs: tuple[int, int], x, lengths, **options):
    """Quantisation-aware training, in real numbers and then in the machine's arithmetic.

    Args:
        epochs:     Of the two phases.
        x, lengths: A test set.
        options:    seed and progress of `fit`.

    Returns:
        The network's outputs for the test set after each phase.
    """
    outputs = []
    for phase, lowered, rate, count in zip(("QAT", "QAT, lowered"), (False, True), (5e-4, 1e-4), epochs, strict=True):
        optimiser = torch.optim.Adam(net.groups(rate))
        train_classifier(net, samples, optimiser, phase=phase, lowered=lowered, epochs=count, **options)
        with torch.no_grad():
            outputs.append(net(x, lengths, lowered))
    return outputs


def train_lstm(
    out: Path,
    *,
    seed: int = 0,
    folder: Path | None = None,
    hidden: Sequence[int] = (32,),
    weights_format: Format = EIGHT_BITS,
    input_format: Format = EIGHT_BITS,
    gates: Gates = SYMMETRIC,
    initial: InitialState = InitialState.ZERO,
    block: int | None = None,
    epochs: tuple[int, int, int] = (80, 10, 5),
    samples: int | None = None,
    command: str = "nnp train lstm",
    progress: Progress = silent,
) -> Model:
    """Train an LSTM classifier on JapaneseVowels, quantise it, and write the model.

    Args:
        folder:  Of JapaneseVowels_TRAIN.ts; that of the installed package aeon by default.
        hidden:  Sizes of the LSTM layers.
        gates:   How the weights of gates become integers.
        initial: h and c before the first time step.
        epochs:  Of FP32 training, of QAT, and of QAT in the machine's arithmetic.
        Others:  As in `train.runs.mlp.train_mlp`.

    Raises:
        ValueError: a width, size or number of epochs makes no sense, the data are missing, or a value left the range
            of binary16.
    """
    _check(hidden, epochs)
    gates.travels_as(weights_format)  # refuses before anything is trained
    train, test = data.japanese_vowels(folder), dataset.load("japanese-vowels")
    train = train.first(samples or len(train.labels))
    options = {"seed": seed, "progress": progress}
    net = train_float(train, hidden, epochs=epochs[0], initial=initial, **options)
    method = f"FP32, {epochs[0]} epochs of AdamW with noise on the input; "
    if initial is not InitialState.ZERO:
        method = f"first state {initial}, seed {seed}; " + method
    x, lengths, _ = tensors(test)
    with torch.no_grad():
        fp32 = net(x, lengths)
    lowered = None
    if block is None:
        calibration = tensors(train)[:2]
        qat = QuantisedClassifier(net, calibration[0], weights_format, input_format, gates)
        real, lowered = retrain(qat, train, epochs[1:], x, lengths, **options)
        layers = qat.lower(*calibration)
        method += (
            f"weights of {weights_format.bits} bits, {gates}, x and h of "
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


def _check(hidden: Sequence[int], epochs: Sequence[int]):
    if not hidden or min(hidden) < 1:
        raise ValueError(f"hidden sizes are {list(hidden)}: give one or more, each at least 1")
    check_epochs(epochs)


def blocks(net: FloatClassifier, weights_format: Format, input_format: Format, block: int) -> tuple:
    """The FP32 network in block floating point."""
    formats = {"weights_format": weights_format, "input_format": input_format, "block": block}
    with torch.no_grad():
        layers = [
            block_lowering.block_recurrent(
                cell=LSTM,
                name=f"lstm{index + 1}",
                input_weights=layer.input_weights.numpy(),
                recurrent_weights=layer.recurrent_weights.numpy(),
                bias=layer.bias.numpy(),
                initial=dict(zip(LSTM.states, layer.first.numpy(), strict=True)),
                **formats,
            )
            for index, layer in enumerate(net.layers)
        ]
        weights, bias = net.head.weight.numpy(), net.head.bias.numpy()
        return (*layers, block_lowering.block_dense(name="output", weights=weights, bias=bias, **formats))
