"""Networks of `nox -s twin_networks` that PyTorch quantises: with weights from a seed, and those of MLPerf Tiny."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from concord.benchmarks import tiny_models, tiny_published
from concord.benchmarks.bench_tiny import in_eight_bits
from concord.benchmarks.tiny_published import (
    MODELS_SOURCE,
    PUBLISHED,
    SEED,
    TEST_SEED,
    data_of,
    digest,
    onnx_file,
    published_file,
)
from concord.campaigns.twin_comparison import IMAGES, VOWELS, ComparedNetwork, first_samples
from concord.campaigns.verify_matrix import STYLES
from concord.datasets import dataset
from concord.datasets.samples import DataSet, Samples, Task
from concord.firmware.firmware import Firmware
from concord.frontends.onnx.read import read_network
from concord.net.cells.registry import CELLS
from concord.net.graph import Graph
from concord.net.model import Model, Provenance
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.quantized import prepared, quantized
from concord.net.quantize.run import opened, quantize
from concord.net.quantize.widths import NetworkArithmetic
from concord.spec.machine.machine_file import find_config
from concord.spec.numbers.formats import Format
from concord.train.recurrent.float_network import FloatClassifier
from concord.train.runs.recurrent import EIGHT_BITS, choices_of, tensors
from concord.twin.source.writer import module_name

HIDDEN = 20  #: Size of recurrent layers, which fills no native vector.
CALIBRATION, WEIGHTS_SEED = 64, 7  #: Number of samples for calibration, and seed of weights.
COMMAND = "nox -s twin_networks"
TINY_PRESET = "vision_large"  #: Machine that each network of MLPerf Tiny fits.
NOWHERE = Provenance(command=COMMAND, method="random weights", seed=WEIGHTS_SEED, fp32_accuracy=0, quantized_accuracy=0,
                     golden_accuracy=0)


def random_networks(out: Path) -> Iterator[ComparedNetwork]:
    """Recurrent networks, convolutional ones and the architectures of MLPerf Tiny, with weights from seeds.

    Args:
        out: Folder of the files that come up.
    """
    sources = {"weights": f"seed {WEIGHTS_SEED}", "samples": first_samples}
    for cell in CELLS:
        for arithmetic in "integer", "bfp":
            yield ComparedNetwork(name=f"{cell}, {arithmetic}", preset="speech",
                                  make=partial(recurrent, cell, arithmetic),
                                  calibration=f"{CALIBRATION} of {VOWELS}", inputs=VOWELS, **sources)
    for style in STYLES:
        for machine in "vision", "ulx3s":
            for arithmetic in "integer", "bfp":
                yield ComparedNetwork(name=f"{style}, {arithmetic}", preset=machine,
                                      make=partial(imported, style, STYLES[style], machine, arithmetic, out),
                                      calibration=f"{CALIBRATION} of {IMAGES}", inputs=IMAGES, **sources)
    for name in tiny_models.REFERENCES:
        yield ComparedNetwork(name=tiny_models.title(name), preset=TINY_PRESET, weights="seed 0",
                              calibration=f"seed {tiny_models.SEED}", inputs=f"seed {tiny_models.TEST_SEED}",
                              make=partial(tiny_models.quantized, name, out),
                              samples=lambda _, count, name=name: list(tiny_models.run_inputs(name, count)))


def recurrent(cell: str, arithmetic: str, machine: str = "speech") -> Model:
    """A classifier of the shipped utterances, with one recurrent layer and random weights."""
    torch.manual_seed(WEIGHTS_SEED)
    x, lengths, _ = tensors(dataset.load(VOWELS).first(CALIBRATION))
    net = FloatClassifier(x.shape[2], (HIDDEN,), 9, CELLS[cell])
    config = find_config(machine)
    choices = choices_of(EIGHT_BITS, EIGHT_BITS) if arithmetic == "integer" else choices_of(
        config.weights, config.activations, block=config.native_dim)
    made = quantized(prepared(net.graph(), choices), x.numpy(), lengths.numpy())
    layers, sources = made.layers, made.sources
    none = np.zeros(0, np.uint8)
    return Model(name=f"{cell}-{arithmetic}", data=VOWELS, preprocessing="none", classes=(), layers=tuple(layers),
                 provenance=NOWHERE, fp32_predictions=none, quantized_predictions=none, sources=sources)


def imported(name: str, build: Callable[[], torch.nn.Module], machine: str, arithmetic: str, out: Path) -> Model:
    """A network of images with random weights, which comes through ONNX and post-training quantisation.

    Args:
        name:       Its name.
        build:      Function that makes it.
        machine:    Preset or TOML file.
        arithmetic: `integer` or `bfp`.
        out:        Folder of the files that come up.
    """
    torch.manual_seed(WEIGHTS_SEED)
    path = out / f"{name}.onnx"
    with warnings.catch_warnings(action="ignore"):  # PyTorch announces that another exporter is its default
        torch.onnx.export(build().eval(), (torch.zeros(1, 1, 28, 28),), path, dynamo=False)
    images = dataset.load(IMAGES).first(CALIBRATION)
    data = DataSet(name=IMAGES, task=Task.NONE, shape=(1, 28, 28), train=None, test=None, description="",
                   calibration=Samples(inputs=images.inputs))
    choices = QuantizationOptions(preset=machine, arithmetic=NetworkArithmetic(arithmetic)).choices()
    made = out / f"{name}-{Path(machine).stem}-{arithmetic}.safetensors"
    return quantize(made, opened(read_network(path), data, choices), choices, command=COMMAND)


def published_networks(models: Path, features: Path | None, out: Path, converter: str) -> list[ComparedNetwork]:
    """The networks of MLPerf Tiny with the weights of their published files, which are converted at once.

    Args:
        models:    Folder in or below which files of them lie; a network without a file cannot be made.
        features:  Folder of the features of keyword spotting; see `tiny_published.keywords`.
        out:       Folder of the files that come up.
        converter: Python that has tf2onnx.

    Raises:
        ValueError: there is no such folder, it holds none of these files, or one of them cannot be converted.
    """
    if not models.is_dir():
        raise ValueError(f"{models}: there is no such folder; the files are in {MODELS_SOURCE}")
    found = {name: published_file(network, models) for name, network in PUBLISHED.items()}
    if not any(found.values()):
        names = ", ".join(network.file for network in PUBLISHED.values())
        raise ValueError(f"{models}: none of the files {names} (.onnx or .tflite) lies in it or below it; they are in "
                         f"benchmark/training/*/trained_models of {MODELS_SOURCE}")
    return [_published(name, file, models, features, out, converter) for name, file in found.items()]


def _published(
    name: str, file: Path | None, models: Path, features: Path | None, out: Path, converter: str,
) -> ComparedNetwork:
    features = features if name == "kws" else None
    title = f"{PUBLISHED[name].title}, published"
    if file is None:
        return ComparedNetwork(name=title, preset=TINY_PRESET, weights=f"{PUBLISHED[name].file}: no file",
                               calibration="-", inputs="-", make=None, samples=first_samples)
    onnx = onnx_file(PUBLISHED[name], models, out, converter)

    @cache
    def read() -> Graph:
        return replace(read_network(onnx), name=name)

    def make() -> Model:
        data, _ = data_of(name, read().shape, features, 1)
        return in_eight_bits(out, read(), data, COMMAND)

    def samples(firmware: Firmware, count: int) -> list[np.ndarray]:
        data, _ = data_of(name, read().shape, features, count)
        return list(data.tested(name).inputs[:count])

    return ComparedNetwork(
        name=title, preset=TINY_PRESET, weights=f"{file.name} ({digest(file)})",
        calibration=f"{tiny_published.CALIBRATION} of {features.name}, seed {SEED}" if features else f"seed {SEED}",
        inputs=features.name if features else f"seed {TEST_SEED}", make=make, samples=samples)


#: Exponents that blocks share, and the one of elements that share none.
SHARED: dict[str, Any] = {"e_min": -11, "e_max": 4}
ALONE: dict[str, Any] = {"e_min": 4, "e_max": 4}
EIGHT = Format(bits=8, symmetric=True, **SHARED)
E2M1, E3M0, E3M2 = (Format.floating(*each, **SHARED) for each in ((2, 1), (3, 0), (3, 2)))
E4M3 = Format.floating(4, 3, **ALONE)
#: Formats of weights and inputs.
MIXTURES = (E3M0, EIGHT), (E4M3, EIGHT), (E4M3, E4M3), (E2M1, E3M2), (EIGHT, E4M3), (E3M0, E3M0)


def float_networks(out: Path) -> Iterator[ComparedNetwork]:
    """A perceptron, a residual network and an LSTM for each mixture of formats, with weights from a seed.

    Args:
        out: Folder of the files that come up.
    """
    out.mkdir(parents=True, exist_ok=True)
    for mixture in MIXTURES:
        name = " and ".join(fmt.element for fmt in mixture)
        machine = out / f"{module_name(name)}.toml"
        machine.write_text(machine_text(*mixture))
        sources = {"preset": str(machine), "weights": f"seed {WEIGHTS_SEED}", "samples": first_samples}
        for style, build in {"mlp": mlp, "ResNet": STYLES["ResNet"]}.items():
            yield ComparedNetwork(name=f"{style}, {name}",
                                  make=partial(imported, style, build, str(machine), "bfp", out),
                                  calibration="-", inputs=IMAGES, **sources)
        yield ComparedNetwork(name=f"lstm, {name}", make=partial(recurrent, "lstm", "bfp", str(machine)),
                              calibration=f"{CALIBRATION} of {VOWELS}", inputs=VOWELS, **sources)


def machine_text(weights: Format, inputs: Format) -> str:
    """The TOML file of a machine of these formats, whose accumulator holds all bits of the smallest products."""
    rows = [f"{name} = {{ bits = {fmt.bits}, precision = {fmt.precision}, symmetric = true, e_min = {fmt.e_min}, "
            f"e_max = {fmt.e_max} }}" for name, fmt in (("weights", weights), ("activations", inputs))]
    return "\n".join(['based_on = "vision"', "multipliers = 0", "acc_int = 14", "acc_frac = 46", *rows, ""])


def mlp() -> torch.nn.Sequential:
    """Two dense layers, between which lie numbers that fill no native vector."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 40), torch.nn.ReLU(), torch.nn.Linear(40, 10))
