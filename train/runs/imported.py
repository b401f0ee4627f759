"""Imported networks, trained on from their own weights with quantisers.

Source: S0; S1; numerics.md of the specification, integer mode, items 4 to 8.
"""

from dataclasses import replace
from pathlib import Path

import torch
from concord.datasets import measures
from concord.datasets.samples import NO_DATA, DataSet
from concord.golden.mfu.softmax import softmax
from concord.net.graph import Graph
from concord.net.layers.joins import with_softmax
from concord.net.model import Model
from concord.net.quantize.blocks import Blocks
from concord.net.quantize.choices import Choices
from concord.net.quantize.integers import Integers
from concord.net.quantize.node_results import outputs
from concord.net.quantize.quantized import calibrate, prepared
from concord.net.quantize.source import NetworkWithData, source, with_classes
from concord.net.quantize.started import Begun, StartedIntegers
from concord.train.lib.export import finish, floats, patterns
from concord.train.lib.fit import Progress, begin_log, check_epochs, reproducible, silent
from concord.train.lib.observer import Observer
from concord.train.lib.samples import SampleTensors, loss_of, trainable
from concord.train.network.quantized_network import QuantizedNetwork, first_stage
from concord.train.network.stages import in_stages
from concord.train.overflow.options import ANY_WIDTH, OverflowOptions
from concord.train.overflow.predictor import settled, words_of
from concord.train.runs.qat_training import by_adam, train_quantized

#: Number of samples in a batch, and learning rates at the beginning: of SGD, and of Adam.
BATCH, RATE, ADAM_RATE = 50, 0.01, 5e-4


def write(
    out: Path, source: NetworkWithData, net: QuantizedNetwork, choices: Choices, method: str, *, seed: int,
    command: str, real: torch.Tensor | None = None, progress: Progress = silent,
) -> Model:
    """Write a quantised network, and measure it if there is a test set.

    Args:
        out:    The model file.
        source: The network and its data.
        net:    The same network with quantisers.
        choices: How it was quantised, and whether the machine computes a softmax at its end.
        method: Method of quantisation, in a sentence.
        real:   Outputs for the test set before the lowered phase of training; None for those of `net`.
        Others: As in `Provenance`.

    Raises:
        ValueError: a number left the range of binary16.
        RuntimeError: golden and PyTorch differ in a bit, which is a defect of this program.
    """
    layers, sources = net.lower()
    measured, data = source.test or source.calibration, source.data
    samples = SampleTensors.of(measured)
    ends = {"fp32": torch.from_numpy(outputs(source.network, source.numbers(measured), measured.lengths)),
            "quantized": samples.outputs(net) if real is None else real,
            "lowered": samples.outputs(net, lowered=True)}
    if source.network.softmax and source.outputs <= choices.softmax:
        layers = with_softmax(layers)
        ends = {name: torch.softmax(made, 1) for name, made in ends.items()} | {
            "lowered": floats(softmax(patterns(ends["lowered"])))}
    return finish(
        out, layers, measured, sources=sources, data=data.name if source.test else NO_DATA,
        preprocessing="numbers as the description of the data says, each rounded to binary16", **ends, seed=seed,
        command=command, method=method, task=data.task, description=data.description,
        axes=source.network.input_axes, imported=source.network, progress=progress)


def train_imported(
    out: Path,
    *,
    network: Graph,
    data: DataSet,
    choices: Choices,
    seed: int = 0,
    epochs: tuple[int, int] = (4, 1),
    rate: float | None = None,
    overflow: OverflowOptions = ANY_WIDTH,
    begun: Begun | None = None,
    command: str = "nnp train",
    progress: Progress = silent,
) -> Model:
    """Train an imported network on with quantisers, from its weights, and write the model.

    Args:
        out:         The model file.
        network:     The network in float32.
        data:        Its data.
        choices:     How the network is quantised.
        seed:        Seed of every random choice.
        epochs:      Epochs of QAT, and of QAT in the machine's arithmetic.
        rate:        Learning rate at the beginning; `RATE` or `ADAM_RATE` by default.
        overflow:    See `train.runs.mlp.train_mlp`.
        begun:       Model from which layers start; None where all are quantised anew.
        command:     Command line that the model records.
        progress:    Shows steps of training.

    Raises:
        Unsupported: an operation of the network cannot be quantised.
        ValueError: data are missing or do not fit, a method cannot do a width, a number is outside binary16, or
            training has diverged.
    """
    check_epochs(epochs)
    found, staged = source(network, data), bool(getattr(choices.recipe, "stages", ()))
    arithmetic = prepared(network, choices, found.steps, scales_apart=not staged)
    arithmetic = first_stage(arithmetic, choices) if begun is None else StartedIntegers(
        arithmetic.plan, replace(choices, recipe=arithmetic.recipe), begun)
    _check_normalisation(arithmetic)
    samples = trainable(found.data, found.outputs)
    overflow.check(integers=not choices.blocks)
    part = SampleTensors.of(with_classes(samples, found.data.task, found.outputs))
    test = found.test and SampleTensors.of(found.test)
    reproducible(seed)
    calibrate(arithmetic, found.numbers(found.calibration), found.calibration.lengths, progress)
    net, task = QuantizedNetwork(arithmetic), found.data.task
    words = _started(net) if begun else "imported"
    calibration = SampleTensors.of(found.calibration)
    predictor = settled(net, calibration.x, overflow, progress, calibration.lengths)
    if not staged:
        net.lower()  # a number outside binary16 would end training as a loss that is none
    observer = Observer.of(progress)
    observer.attend(net, calibration.x, calibration.lengths, predictor)
    adam = by_adam(network)
    rate = (ADAM_RATE if adam else RATE) if rate is None else rate
    rate = predictor.rate(rate) if predictor else rate
    loss = loss_of(task, part)

    def accuracy(lowered: bool) -> float:
        return measures.first(task, test.outputs(net, lowered=lowered).numpy(), test.samples)

    def phase(lowered: bool, rate: float, count: int, name: str = ""):
        train_quantized(
            net.train(), lambda index: loss(net(*part.at(index), lowered=lowered), index), len(part), lowered=lowered,
            rate=rate, epochs=count, batch=BATCH, seed=seed, progress=progress, predictor=predictor, name=name,
            accuracy=test and (lambda: accuracy(lowered)))
        net.eval()

    if begun and test:
        begin_log(f"start, {words}", net, lambda: accuracy(True), rate, progress)

    count = in_stages(net, calibration.x, epochs[0],
                      lambda name, count: phase(False, rate, count, name), progress)
    real = (test or calibration).outputs(net)
    phase(True, rate / (5 if adam else 10), epochs[1])
    method = (f"{network.name}: {words}; {choices.words(network.sequence)}; {count} epochs of QAT; {epochs[1]} "
              "epochs more in the machine's arithmetic" + words_of(predictor) + observer.steering)
    return write(out, found, net, choices, method, seed=seed, command=command, real=real, progress=progress)


def _check_normalisation(arithmetic: Integers | Blocks):
    """Refuse batch normalisation that shall stay during training where there is none.

    Raises:
        ValueError: no layer has any.
    """
    plan, recipe = arithmetic.plan, arithmetic.recipe
    if getattr(recipe, "normalise", False) and not any(part.spread for part in plan.parts):
        raise ValueError(f"--batch-norm: {plan.graph.name} has no batch normalisation behind a convolution or dense "
                         "layer, which exporters may have folded; leave --batch-norm out, or export it unfolded")


def _started(net: QuantizedNetwork) -> str:
    """Which layers of a network start from a model, in words.

    Raises:
        ValueError: the network is the model's own, and a layer cannot be trained as it is.
    """
    net.arithmetic.check_equal(net.lower()[0])
    return net.arithmetic.words
