"""Recurrent classifiers: FP32, then integers or block floating point, then training in the machine's own arithmetic.

Source: S1; numerics.md of the specification, LSTM.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from concord.datasets import dataset
from concord.net.cells.cell import Cell
from concord.net.cells.registry import CELLS
from concord.net.first_states import InitialState
from concord.net.model import Model
from concord.net.quantize.choices import BlockFormats, Choices
from concord.net.quantize.recipe import Gates, Recipe
from concord.net.quantize.results import Results
from concord.spec.numbers.formats import Format
from concord.train.lib import data
from concord.train.lib.export import finish, floats
from concord.train.lib.fit import Progress, check_epochs, cross_entropy, fit, reproducible, silent
from concord.train.network.quantized_network import QuantizedNetwork, behind_quantizers
from concord.train.overflow.options import ANY_WIDTH, OverflowOptions
from concord.train.overflow.predictor import Predictor, settled, words_of
from concord.train.qat import block_quantizer
from concord.train.recurrent.float_network import FloatClassifier
from concord.train.runs.qat_training import train_quantized

EIGHT_BITS = Format(bits=8, symmetric=True)
#: The same with the exponents of the presets with 8-bit operands: sums of training are exact in float64.
EIGHT_BIT_BLOCKS = Format(bits=8, symmetric=True, e_min=-11, e_max=4)
SYMMETRIC = Gates()
#: Number of utterances in a batch.
BATCH = 30
#: Standard deviation of the noise added to the cepstra in training.
NOISE = 0.2


def noisy_loss(net, samples: dataset.Samples, noise: torch.Generator, **mode) -> Callable[[torch.Tensor], torch.Tensor]:
    """The loss of a network for the samples of some indices, with noise on their cepstra."""
    x, lengths, labels = tensors(samples)

    def loss(index):
        noisy = x[index] + NOISE * torch.randn(x[index].shape, generator=noise)
        return cross_entropy(net(noisy.half().float(), lengths[index], **mode), labels[index])

    return loss


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
    net = FloatClassifier(samples.inputs.shape[2], hidden, len(samples.classes), cell, both=both, initial=initial,
                          seed=seed)
    noise = torch.Generator().manual_seed(seed)
    fit(phase="FP32 training", net=net, loss=noisy_loss(net, samples, noise), noise=noise, count=len(samples),
        optimiser=torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1), batch=BATCH, epochs=epochs, seed=seed,
        progress=progress)
    return net


def retrain(
    net: QuantizedNetwork, samples: dataset.Samples, epochs: tuple[int, int], x, lengths, *, seed: int,
    progress: Progress = silent, predictor: Predictor | None = None,
) -> list[torch.Tensor]:
    """Quantisation-aware training, in real numbers and then in the machine's arithmetic.

    Args:
        epochs:     Number of epochs of each of the two phases.
        x, lengths: A test set.
        predictor:  Predictor that changes the ranges of layers, or None.

    Returns:
        The network's outputs for the test set after each phase.
    """
    outputs = []
    for lowered, rate, count in zip((False, True), (5e-4, 1e-4), epochs, strict=True):
        noise = torch.Generator().manual_seed(seed)
        train_quantized(net, noisy_loss(net, samples, noise, lowered=lowered), len(samples), lowered=lowered,
                        epochs=count, rate=rate, batch=BATCH, seed=seed, progress=progress, noise=noise,
                        predictor=predictor)
        with torch.no_grad():
            outputs.append(net(x, lengths, lowered=lowered))
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
    output_bits: int | None = None,
    initial: InitialState = InitialState.ZERO,
    block: int | None = None,
    epochs: tuple[int, int, int] = (80, 10, 5),
    overflow: OverflowOptions = ANY_WIDTH,
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
        output_bits:    Bits of the results of all products; None for binary16.
        initial:        The states before the first time step.
        block:          Elements that share an exponent, for block floating point; integers without it.
        epochs:         Epochs of FP32 training, of QAT, and of QAT in the machine's arithmetic.
        Others:         As in `train.runs.mlp.train_mlp`.

    Raises:
        ValueError: a width, size or number of epochs makes no sense, the data are missing, or a value left the range
            of binary16.
    """
    _check(hidden, epochs)
    overflow.check(integers=block is None)
    default = EIGHT_BITS if block is None else EIGHT_BIT_BLOCKS
    weights_format, input_format = weights_format or default, input_format or default
    gates.check(CELLS[cell])  # this and the next lines refuse before anything is trained
    gates.travels_as(weights_format)
    for fmt in (weights_format, input_format) if block is not None else ():
        block_quantizer.check(fmt)
    choices = choices_of(weights_format, input_format, gates, block, output_bits)
    sets = data.vowel_sets(folder)
    train, test = sets.train.first(samples or len(sets.train)), sets.test
    options = {"seed": seed, "progress": progress}
    net = train_float(train, hidden, epochs=epochs[0], initial=initial, cell=CELLS[cell], both=both, **options)
    x, lengths, _ = tensors(test)
    with torch.no_grad():
        fp32 = net(x, lengths)
    given, times, _ = tensors(train)
    qat = behind_quantizers(net.graph(), given, choices, times, progress, machine=True)
    predictor = settled(qat, given, overflow, progress, times)
    real, lowered = retrain(qat, train, epochs[1:], x, lengths, predictor=predictor, **options)
    layers, sources = qat.lower()
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
            f"{choices.words(True)}; {epochs[1]} epochs of QAT; {epochs[2]} epochs more in the machine's arithmetic"
            + words_of(predictor)
        ),
        sources=sources,
    )


def choices_of(weights_format: Format, input_format: Format, gates: Gates = SYMMETRIC, block: int | None = None,
               output_bits: int | None = None) -> Choices:
    """How a recurrent network is quantised; for the arguments see `train_recurrent`."""
    results = Results(bits=output_bits)
    if block is not None:
        return Choices(gates=gates, recipe=BlockFormats(
            weights=weights_format, inputs=input_format, block=block, results=results))
    return Choices(gates=gates, recipe=Recipe(
        weights_bits=weights_format.bits, input_bits=input_format.bits, symmetric=(True, input_format.symmetric),
        results=results))


def _check(hidden: Sequence[int], epochs: Sequence[int]):
    if not hidden or min(hidden) < 1:
        raise ValueError(f"hidden sizes are {list(hidden)}: give one or more, each at least 1")
    check_epochs(epochs)
