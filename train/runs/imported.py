"""Imported networks, trained on from their own weights behind quantisers.

Source: S0; S1; numerics.md of the specification, integer mode, items 4 to 8.
"""

from pathlib import Path

import torch
from concord.datasets import measures
from concord.datasets.samples import NO_DATA, DataSet, Task
from concord.golden.mfu.softmax import softmax
from concord.net.graph import Graph
from concord.net.layer_overflow import Widths
from concord.net.layers.softmax import with_softmax
from concord.net.model import Model
from concord.net.quantize.choices import Choices
from concord.net.quantize.source import with_classes
from concord.train.imported.objectives import loss_of, trainable
from concord.train.imported.part import Part
from concord.train.imported.quantized import Quantized, check, lowered, quantized
from concord.train.imported.source import Source, source
from concord.train.lib.export import finish, floats, patterns
from concord.train.lib.fit import Progress, check_epochs, fit, reproducible, silent
from concord.train.overflow.predictor import Predictor, settled

#: Number of samples in a batch, and learning rates at the beginning: of SGD, and of Adam for recurrent networks.
BATCH, RATE, RECURRENT_RATE = 50, 0.01, 5e-4


def write(
    out: Path, source: Source, net: Quantized, choices: Choices, method: str, *, seed: int, command: str,
    real: torch.Tensor | None = None, progress: Progress = silent,
) -> Model:
    """Write a quantised network, and measure it if there is a test set.

    Args:
        out:    The model file.
        source: The network and its data.
        net:    The same network behind quantisers.
        choices: How it was quantised, and whether the machine computes a softmax at its end.
        method: Method of quantisation, in a sentence.
        real:   Outputs for the test set before the lowered phase of training; None for those of `net`.
        Others: As in `Provenance`.

    Raises:
        ValueError: a number left the range of binary16.
        RuntimeError: golden and PyTorch differ in a bit, which is a defect of this program.
    """
    layers, sources = lowered(source, net)
    measured, data = source.test or source.calibration, source.data
    qat = measured.outputs(net, False) if real is None else real
    ends = {"fp32": measured.outputs(source.net), "quantized": qat, "lowered": measured.outputs(net, True)}
    if source.network.softmax and source.outputs <= choices.softmax:
        layers = with_softmax(layers)
        ends = {name: torch.softmax(outputs, 1) for name, outputs in ends.items()} | {
            "lowered": floats(softmax(patterns(ends["lowered"])))}
    return finish(
        out, layers, measured.samples, sources=sources, data=data.name if source.test else NO_DATA,
        preprocessing="numbers as the description of the data says, each rounded to binary16", **ends, seed=seed,
        command=command, method=method, task=data.task, description=data.description,
        axes=source.network.input_axes, progress=progress)


def train_imported(
    out: Path,
    *,
    network: Graph,
    data: DataSet,
    choices: Choices,
    seed: int = 0,
    epochs: tuple[int, int] = (4, 1),
    rate: float | None = None,
    accumulator: int | None = None,
    command: str = "nnp train",
    progress: Progress = silent,
) -> Model:
    """Train an imported network on behind quantisers, from its weights, and write the model.

    Args:
        out:         The model file.
        network:     The network in float32.
        data:        Its data.
        choices:     How the network is quantised.
        seed:        Seed of every random choice.
        epochs:      Epochs of QAT, and of QAT in the machine's arithmetic.
        rate:        Learning rate at the beginning; `RATE` or `RECURRENT_RATE` by default.
        accumulator: See `train.runs.mlp.train_mlp`.
        command:     Command line that the model records.
        progress:    Shows steps of training.

    Raises:
        Unsupported: an operation of the network cannot be quantised.
        ValueError: data are missing or do not fit, a method cannot do a width, or training has diverged.
    """
    check_epochs(epochs)
    found = source(network, data)
    check(found, choices)
    samples = trainable(found.data, found.outputs)
    if accumulator is not None and (network.sequence or choices.blocks):
        raise ValueError("--accumulator is for feed-forward networks in integers: leave it out")
    part = found.part(with_classes(samples, found.data.task, found.outputs))
    reproducible(seed)
    net = quantized(found, choices, progress)
    predictor = None if accumulator is None else settled(
        net, found.calibration.inputs[0], Widths(sum_bits=accumulator), progress)
    rate = (RECURRENT_RATE if network.sequence else RATE) if rate is None else rate
    rate = predictor.rate(rate) if predictor else rate
    measured = found.test or found.calibration
    options = {"seed": seed, "progress": progress, "predictor": predictor, "test": found.test}
    train_phase(net, found.data.task, part, lowered=False, epochs=epochs[0], rate=rate, **options)
    real = measured.outputs(net, False)
    slower = 5 if network.sequence else 10
    train_phase(net, found.data.task, part, lowered=True, epochs=epochs[1], rate=rate / slower, **options)
    method = (f"{network.name}: imported; {choices.words(network.sequence)}; {epochs[0]} epochs of QAT; {epochs[1]} "
              "epochs more in the machine's arithmetic" + (f"; {predictor.record}" if predictor else ""))
    return write(out, found, net, choices, method, seed=seed, command=command, real=real, progress=progress)


def train_phase(
    net: Quantized, task: Task, part: Part, *, lowered: bool, rate: float, epochs: int, seed: int,
    progress: Progress = silent, predictor: Predictor | None = None, test: Part | None = None,
):
    """Train one phase: recurrent networks by Adam, others by SGD with momentum.

    Args:
        net:       Network behind quantisers.
        task:      Task of the network, which decides the loss.
        part:      Training samples.
        lowered:   Whether the forward pass is in the machine's arithmetic, rather than in real numbers.
        rate:      Learning rate at the beginning.
        predictor: See `train.runs.qat_training.train_quantized`.
        test:      Test set, on which a log measures each epoch.
        Others:    See `fit`.
    """
    recurrent, loss = len(part.inputs) > 1, loss_of(task, part)
    optimiser = torch.optim.Adam(net.groups(rate)) if recurrent else torch.optim.SGD(net.groups(rate), momentum=0.9)
    following = {"after_epoch": predictor.run, "also": {"predictor": predictor}} if predictor else {}
    fit(phase="QAT, lowered" if lowered else "QAT", net=net.train(), optimiser=optimiser,
        loss=lambda index: loss(net(*part.at(index), lowered), index), count=len(part), batch=BATCH, epochs=epochs,
        seed=seed, progress=progress, after_step=net.bound,
        accuracy=test and (lambda: measures.first(task, test.outputs(net, lowered).numpy(), test.samples)),
        **following)
    net.eval()
