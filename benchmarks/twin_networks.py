"""Twins of every kind of network beside golden, bit by bit: `nox -s twin_networks`.

Shipped networks; recurrent networks of every cell; convolutional networks of three styles; the MLPerf Tiny networks.
Integers, block floating point, floats and powers of two. Each firmware becomes a twin in every framework that is
installed, with its hints and without them, and each of them runs the same samples as golden.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy reads this at its import

import numpy as np
import torch
import typer
from concord.benchmarks import tiny_models
from concord.benchmarks.matrix_networks import STYLES
from concord.compiler.network import compile_network, full_precision
from concord.front.read import read_network
from concord.golden.host.firmware import Firmware
from concord.golden.unquantised import UnquantisedMachine
from concord.model.cells.registry import CELLS
from concord.model.data import dataset
from concord.model.data.samples import DataSet, Samples, Task
from concord.model.model import Model, Provenance
from concord.model.model_file import load_model
from concord.nnp.lib.choices import choices_for
from concord.nnp.verify.session import Session
from concord.nnp.verify.twin_source import CLOSE, TwinSource, differing, distance, installed
from concord.sim.machines import host
from concord.spec.config import PRESETS
from concord.spec.machine_file import find_config
from concord.train.recurrent.classifier import BlockClassifier, BlockFormats, QuantisedClassifier
from concord.train.recurrent.float_network import FloatClassifier
from concord.train.recurrent.integer_layer import SYMMETRIC
from concord.train.runs.imported import prepared, quantize
from concord.train.runs.recurrent import EIGHT_BITS, tensors
from concord.twin.recovery.recover import recover
from concord.twin.source.frameworks import FORMS, Framework
from concord.twin.source.hints import without_hints
from concord.twin.source.twin_file import module_name, write_twin
from rich.console import Console
from rich.table import Table

OUT = Path("build/twin_networks")
SHIPPED = {"fashion-mlp-bfp8": "trainer", "fashion-mlp-w4a4": "ulx3s", "fashion-resnet-w8": "vision",
           "vowels-lstm-w8": "vision"}
MODELS = Path("data/models")
VOWELS, IMAGES = "japanese-vowels", "fashion-mnist"
#: Machines whose elements have exponents of their own, by the names of their formats: weights and inputs.
FLOATS = {
    "E3M0 and 8 bits": 'weights = { precision = 1 }',
    "E4M3 and 8 bits": 'weights = { bits = 19, precision = 4, e_min = 4, e_max = 4 }',
    "E4M3 and E4M3": 'weights = { bits = 19, precision = 4, e_min = 4, e_max = 4 }\n'
                     'activations = { bits = 19, precision = 4, e_min = 4, e_max = 4 }',
    "E2M1 and E3M2": 'weights = { bits = 5, precision = 2 }\nactivations = { bits = 10, precision = 3 }',
    "8 bits and E4M3": 'activations = { bits = 19, precision = 4, e_min = 4, e_max = 4 }',
    "E3M0 and E3M0": 'weights = { precision = 1 }\nactivations = { precision = 1 }'}
HIDDEN = 20  #: Size of recurrent layers, which fills no native vector.
CALIBRATION, SEED = 64, 7
STEPS = 7, 13, 20  #: Time steps to which utterances are cut: each number costs a compilation in some frameworks.
TOGETHER = 50  #: Samples of one batch of a twin.
COMMAND = "nox -s twin_networks"
NOWHERE = Provenance(command=COMMAND, method="random weights", seed=SEED, fp32_accuracy=0, qat_accuracy=0,
                     golden_accuracy=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """A network on a machine.

    Attributes:
        name:   Name in the table.
        preset: Machine: a preset, or a TOML file.
        make:   Function that makes its model.
    """

    name: str
    preset: str
    make: Callable[[], Model]


def networks() -> Iterator[Network]:
    """All networks."""
    for name, machine in SHIPPED.items():
        yield Network(name=name, preset=machine, make=partial(load_model, MODELS / f"{name}.safetensors"))
    for cell in CELLS:
        for arithmetic in "integer", "bfp":
            yield Network(name=f"{cell}, {arithmetic}", preset="speech", make=partial(recurrent, cell, arithmetic))
    for style in STYLES:
        for machine in "vision", "ulx3s":
            for arithmetic in "integer", "bfp":
                yield Network(name=f"{style}, {arithmetic}", preset=machine,
                              make=partial(imported, style, machine, arithmetic))
    for name in FLOATS:
        machine = str(own_machine(name))
        yield Network(name=f"mlp, {name}", preset=machine, make=partial(imported, "mlp", machine, "bfp"))
        yield Network(name=f"ResNet, {name}", preset=machine, make=partial(imported, "ResNet", machine, "bfp"))
        yield Network(name=f"lstm, {name}", preset=machine, make=partial(recurrent, "lstm", "bfp", machine))
    for name in tiny_models.REFERENCES:
        yield Network(name=tiny_models.title(name), preset="vision_large",
                      make=partial(tiny_models.quantised, name, OUT))


def own_machine(name: str) -> Path:
    """The TOML file of a machine of floats."""
    path = OUT / f"{module_name(name)}.toml"
    path.write_text(f'based_on = "vision"\nmultipliers = 0\nacc_frac = 46\nacc_int = 14\n{FLOATS[name]}\n')
    return path


def mlp() -> torch.nn.Sequential:
    """Two dense layers, the first of which is no whole number of native vectors."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 40), torch.nn.ReLU(), torch.nn.Linear(40, 10))


def recurrent(cell: str, arithmetic: str, machine: str = "speech") -> Model:
    """A classifier of the shipped utterances, with one recurrent layer and random weights."""
    torch.manual_seed(SEED)
    x, lengths, _ = tensors(dataset.load(VOWELS).first(CALIBRATION))
    net = FloatClassifier(x.shape[2], (HIDDEN,), 9, CELLS[cell])
    if arithmetic == "integer":
        made = QuantisedClassifier(net, x, EIGHT_BITS, EIGHT_BITS, SYMMETRIC, lengths)
    else:
        config = find_config(machine)
        made = BlockClassifier(net, x, lengths, BlockFormats(
            weights=config.weights, inputs=config.activations, block=config.native_dim))
    layers, sources = made.lower(x, lengths)
    none = np.zeros(0, np.uint8)
    return Model(name=f"{cell}-{arithmetic}", data=VOWELS, preprocessing="none", classes=(), layers=tuple(layers),
                 provenance=NOWHERE, fp32_predictions=none, qat_predictions=none, sources=sources)


def imported(style: str, machine: str, arithmetic: str) -> Model:
    """A network of images with random weights, which comes through ONNX and post-training quantisation."""
    torch.manual_seed(SEED)
    path = OUT / f"{style}.onnx"
    with warnings.catch_warnings(action="ignore"):  # PyTorch announces that another exporter is its default
        torch.onnx.export((STYLES | {"mlp": mlp})[style]().eval(), (torch.zeros(1, 1, 28, 28),), path, dynamo=False)
    images = dataset.load(IMAGES).first(CALIBRATION)
    data = DataSet(name=IMAGES, task=Task.NONE, shape=(1, 28, 28), train=None, test=None, description="",
                   calibration=Samples(inputs=images.inputs, lengths=None, labels=None, classes=()))
    choices = choices_for(machine, arithmetic)
    out = OUT / f"{style}-{Path(machine).stem}-{arithmetic}.safetensors"
    return quantize(out, prepared(read_network(path), data, choices), choices, command=COMMAND)


def inputs_of(name: str, firmware: Firmware, count: int) -> list[np.ndarray]:
    """Samples of the data set that a network was made for; random ones for those of MLPerf Tiny."""
    titles = {tiny_models.title(each): each for each in tiny_models.REFERENCES}
    if name in titles:
        return list(tiny_models.run_inputs(titles[name], count))
    samples = dataset.load(VOWELS if firmware.recurrent else IMAGES).first(count)
    if not firmware.recurrent:
        return list(samples.inputs)
    return [sample[:max(each for each in STEPS if each <= length)] for sample, length in zip(
        samples.inputs, samples.lengths, strict=True)]


def batches(samples: list[np.ndarray]) -> Iterator[tuple[list[int], np.ndarray]]:
    """Numbers of samples of one shape, and these samples as a batch."""
    shapes = {sample.shape for sample in samples}
    for shape in sorted(shapes):
        chosen = [index for index, sample in enumerate(samples) if sample.shape == shape]
        for first in range(0, len(chosen), TOGETHER):
            part = chosen[first:first + TOGETHER]
            yield part, np.stack([samples[index] for index in part])


def outputs(firmware: Firmware, samples: list[np.ndarray], machine: str) -> np.ndarray:
    """uint16[samples, outputs] of a machine."""
    with host.machine(machine, firmware.config) as made:
        session = Session(made, firmware)
        return np.stack([session.infer(sample) for sample in samples])


def row(network: Network, ways: list[tuple[Framework, bool]], count: int, on_rtl: int) -> list[str]:
    """Differing bits of each way to run a network, and the number of lines of its twin in numpy."""
    firmware = compile_network(network.make(), find_config(network.preset)).firmware
    samples, cells, lines = inputs_of(network.name, firmware, count), [], ""
    golden = outputs(firmware, samples, "golden")
    rtl = "-"
    if on_rtl and network.preset in PRESETS:  # simulated hardware is built for presets alone
        rtl = differing(golden[:on_rtl], outputs(firmware, samples[:on_rtl], "library"))
    for hints in True, False:
        script = recover(firmware if hints else without_hints(firmware))
        for framework in dict.fromkeys(framework for framework, _ in ways):
            stem = module_name(f"{network.name}_{Path(network.preset).stem}_{framework}{'' if hints else '_plain'}")
            path = write_twin(script, framework, OUT, stem)
            if framework is Framework.NUMPY and hints:
                lines = str(len(path.read_text().splitlines()))
            for compiled in (compiled for each, compiled in ways if each is framework):
                twin, found = TwinSource(path, framework, compiled=compiled), np.zeros_like(golden)
                for chosen, batch in batches(samples):
                    found[chosen] = twin.infer(batch)
                cells.append(f"{differing(golden, found):,}")
    return [network.name, Path(network.preset).stem, str(len(samples)), lines, str(rtl), *cells]


def real_row(network: Network, ways: list[tuple[Framework, bool]], count: int) -> list[str]:
    """Distance of each way to run a network without quantisers from golden without quantisers."""
    model = network.make()
    firmware = compile_network(model, find_config(network.preset)).firmware
    firmware = replace(firmware, full_precision=full_precision(model, firmware))
    samples, machine, cells = inputs_of(network.name, firmware, count), UnquantisedMachine(firmware), []
    golden = np.stack([machine.infer(sample) for sample in samples])
    script = recover(firmware, unquantised=True)
    for framework, compiled in ways:
        stem = module_name(f"{network.name}_{Path(network.preset).stem}_unquantised_{framework}")
        twin = TwinSource(write_twin(script, framework, OUT, stem), framework, compiled=compiled)
        found = np.zeros_like(golden)
        for chosen, batch in batches(samples):
            found[chosen] = twin.numbers(batch)
        cells.append(f"{distance(golden, found):.1e}")
    return [network.name, Path(network.preset).stem, str(len(samples)), *cells]


def compare_reals(console: Console, ways: list[tuple[Framework, bool]], samples: int, only: str) -> bool:
    """Print the distances of twins without quantisers; returns whether one of them is too large."""
    table = Table("network", "preset", "samples", *(framework.value for framework, _ in ways), title_justify="left",
                  title="largest difference of twins from golden, without quantisers, divided by the largest output")
    rows = [real_row(network, ways, samples) for network in networks() if only in network.name]
    for cells in rows:
        table.add_row(*cells)
    console.print(table)
    largest = max((float(cell) for cells in rows for cell in cells[3:]), default=0.0)
    console.print(f"{len(rows)} networks, at most {largest:.1e}")
    return not largest <= CLOSE


def main(
    samples: Annotated[int, typer.Option(help="Number of samples of each network.", min=1)] = 100,
    rtl: Annotated[int, typer.Option(
        help="Number of these that run on the simulated hardware, too.", min=0)] = 10,
    only: Annotated[str, typer.Option(help="Part of the names of the networks that are taken.")] = "",
    frameworks: Annotated[str, typer.Option(
        help="Frameworks, parted by commas.", show_default="those that are installed")] = "",
    eager: Annotated[bool, typer.Option(
        "--eager", help="Leave out torch.compile and graphs of TensorFlow, whose compilation takes minutes.")] = False,
    unquantised: Annotated[bool, typer.Option(
        "--unquantised", help="Compare twins without quantisers with golden without quantisers, eager.")] = False,
):
    """Compare twins with golden and with the simulated hardware, and print a table; exit code 1 if a bit differs."""
    console = Console(width=None if sys.stdout.isatty() else 200)
    OUT.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    chosen = [Framework(name) for name in frameworks.split(",")] if frameworks else list(filter(installed, FORMS))
    ways = [(framework, compiled) for framework in chosen for compiled in (False, True)
            if not compiled or (framework is not Framework.NUMPY and not eager)]
    if unquantised:
        raise typer.Exit(compare_reals(console, [(framework, False) for framework in chosen], samples, only))
    names = [f"{framework}{', compiled' * compiled}" for framework, compiled in ways]
    table = Table("network", "preset", "samples", "lines", f"RTL, {rtl}", *names,
                  *(f"{name}, no hints" for name in names),
                  title="differing bits of twins and of the simulated hardware from golden",
                  title_justify="left")
    rows = []
    for network in networks():
        if only in network.name:
            rows.append(row(network, ways, samples, rtl))
            console.print(", ".join(rows[-1]))
            table.add_row(*rows[-1])
    console.print(table)
    differ = sum(cell not in ("0", "-") for cells in rows for cell in cells[4:])
    console.print(f"{len(rows)} networks, {differ} comparisons with differing bits")
    raise typer.Exit(bool(differ))


if __name__ == "__main__":
    typer.run(main)
