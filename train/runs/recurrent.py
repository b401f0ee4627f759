"""Recurrent classifiers: FP32, then integers or block floating point, then training in the machine's own arithmetic.

Source: S1; numerics.md of the specification, LSTM.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from concord.datasets import dataset
from concord.net.cells.cell import Cell
from concord.net.cells.registry import CELLS
from concord.net.model import Model
from concord.net.quantize.recipe import Gates, InitialState
from concord.spec.numbers.formats import Format
from concord.train.lib import data
from concord.train.lib.export import finish, floats
from concord.train.lib.fit import Progress, check_epochs, cross_entropy, fit, reproducible, silent
from concord.train.recurrent.classifier import BlockClassifier, BlockFormats, QuantizedClassifier
from concord.train.recurrent.float_layer import initial_state
from concord.train.recurrent.float_network import FloatClassifier
from concord.train.recurrent.integer_layer import SYMMETRIC

EIGHT_BITS = Format(bits=8, symmetric=True)
#: The same with the exponents of the presets with 8-bit operands: sums of training are exact in float64.
EIGHT_BIT_BLOCKS = Format(bits=8, symmetric=True, e_min=-11, e_max=4)
#: Standard deviation of the noise added to the cepstra in training.
NOISE = 0.2


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
    cell: Cell = CELLS["lstm"],
    both: bool = False,
) -> FloatClassifier:
    """Train the FP32 network."""
    reproducible(seed)
    net = FloatClassifier(samples.inputs.shape[2], hidden, len(samples.classes), cell, both=both)
    for index, layer in enumerate(net.recurrent):
        layer.first.copy_(initial_state(initial, layer.first.shape, seed=(seed, index)))
    optimiser = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1)
    train_classifier(net, samples, optimiser, phase="FP32 training", epochs=epochs, seed=seed, progress=progress)
    return net


def retrain(
    net: QuantizedClassifier | BlockClassifier, samples: dataset.Samples, epochs: tuple[int, int], x, lengths, **options
):
    """Quantisation-aware training, in real numbers and then in the machine's arithmetic.

    Args:
        epochs:     Number of epochs of each of the two phases.
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


def train_recurrent(
    out: Path,
    *,
    cell: str = "lstm",
    seed: int = 0,
    folder: Path | None = None,
    hidden: Sequence[int] = (32,),
    both: bool = False,
    weights_format: Format | None = None,
    input_format: Format | None = None,
    gates: Gates = SYMMETRIC,
    initial: InitialState = InitialState.ZERO,
    block: int | None = None,
    epochs: tuple[int, int, int] = (80, 10, 5),
    samples: int | None = None,
    command: str = "nnp train",
    progress: Progress = silent,
) -> Model:
    """Train a recurrent classifier on utterances, quantise it, and write the model.

    Args:
        cell:           Name of the cell of the recurrent layers.
        folder:         Folder of training and test utterances; JapaneseVowels by default.
        hidden:         Sizes of the recurrent layers.
        both:           Whether each layer reads a sequence from its end, too.
        weights_format: Format of the weights; 8 bits, symmetric, by default.
        input_format:   Format of x and h; the same by default.
        gates:          How the weights of gates become integers.
        initial:        The states before the first time step.
        block:          Elements that share an exponent, for block floating point; integers without it.
        epochs:         Epochs of FP32 training, of QAT, and of QAT in the machine's arithmetic.
        Others:         As in `train.runs.mlp.train_mlp`.

    Raises:
        ValueError: a width, size or number of epochs makes no sense, the data are missing, or a value left the range
            of binary16.
    """
    _check(hidden, epochs)
    default = EIGHT_BITS if block is None else EIGHT_BIT_BLOCKS
    weights_format, input_format = weights_format or default, input_format or default
    CELLS[cell].check_gate_bits(gates.outputs)  # this and the next line refuse before anything is trained
    gates.travels_as(weights_format)
    sets = data.vowel_sets(folder)
    train, test = sets.train.first(samples or len(sets.train)), sets.test
    options = {"seed": seed, "progress": progress}
    net = train_float(train, hidden, epochs=epochs[0], initial=initial, cell=CELLS[cell], both=both, **options)
    x, lengths, _ = tensors(test)
    with torch.no_grad():
        fp32 = net(x, lengths)
    calibration = tensors(train)[:2]
    if block is None:
        qat = QuantizedClassifier(net, calibration[0], weights_format, input_format, gates, calibration[1])
        arithmetic = f"weights of {weights_format.bits} bits, {gates}, x and h of {input_format.bits} bits"
    else:
        formats = BlockFormats(weights=weights_format, inputs=input_format, block=block)
        qat = BlockClassifier(net, *calibration, formats)
        arithmetic = (f"block floating point in blocks of {block}, mantissas of {weights_format.bits} bits for weights "
                      f"and {input_format.bits} for x and h")
    real, lowered = retrain(qat, train, epochs[1:], x, lengths, **options)
    layers, sources = qat.lower(*calibration)
    first = "" if initial is InitialState.ZERO else f"first state {initial}, seed {seed}; "
    return finish(
        out,
        layers,
        test,
        data=sets.name,
        preprocessing=f"one vector of {train.inputs.shape[2]} cepstra for each frame, each binary16(cepstrum)",
        fp32=fp32,
        quantized=real,
        lowered=lowered,
        seed=seed,
        command=command,
        method=(
            f"{'both directions; ' * both}{first}FP32, {epochs[0]} epochs of AdamW with noise on the input; "
            f"{arithmetic}; {epochs[1]} epochs of QAT; {epochs[2]} epochs more in the machine's arithmetic"
        ),
        sources=sources,
    )


def _check(hidden: Sequence[int], epochs: Sequence[int]):
    if not hidden or min(hidden) < 1:
        raise ValueError(f"hidden sizes are {list(hidden)}: give one or more, each at least 1")
    check_epochs(epochs)
