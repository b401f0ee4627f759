"""The trained networks of MLPerf Tiny, from their published files to RTL: `nox -s bench_tiny`.

Each is converted to ONNX, imported, compared with onnxruntime, brought to 8 bits by post-training quantisation,
compiled, and run on the golden machine and on the Verilated one. Keyword spotting is measured on the benchmark's 1,000
features.
"""

import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # times are those of one core; numpy reads this at its import

import numpy as np
import torch
import typer
from concord.benchmarks.image_costs import Measurement, measure
from concord.benchmarks.tiny_published import (
    DATA_SOURCE,
    MODELS_SOURCE,
    PUBLISHED,
    data_of,
    feature_folder,
    onnx_file,
)
from concord.compiler.network import compile_network
from concord.datasets.samples import DataSet, Task
from concord.firmware.unquantized import UnquantizedMachine
from concord.frontends.onnx.compare import difference, outputs
from concord.frontends.onnx.read import Imported, read
from concord.lib.progress import shown
from concord.net import network
from concord.net.graph import INPUT, Graph
from concord.net.lowering.full_precision import MemoryNumbers
from concord.net.model import Model
from concord.net.quantize.choices import Choices
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.plan import plan
from concord.net.quantize.recipe import ActivationMethod, Methods, Recipe
from concord.net.quantize.run import opened, quantize
from concord.nnp.lib.errors import sentences
from concord.sim.machines.host import build
from concord.spec.machine.config import preset
from concord.train.lib.fit import Progress, silent
from concord.verification.error_split import OUTPUT, PARTS, images_of, split_errors
from rich.console import Console
from rich.table import Table

OUT = Path("build/bench_tiny")
PRESETS = ("vision", "vision_large")  #: Machines; a network runs on the first one that it fits.
TOGETHER = 50  #: Number of samples that the float network runs at once.
GOAL = 0.900  #: Least accuracy of keyword spotting in golden arithmetic, all 1,000 features.
SPLIT = 8  #: Number of samples on which errors are split into their parts.
COMMAND = "nox -s bench_tiny"
#: Formats of the presets for images, and the methods that `nnp quantize` chooses for imported networks.
RECIPE = Recipe(weights_bits=8, input_bits=8, symmetric=(True, True),
                methods=Methods(activations=ActivationMethod.ENDS))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TinyNetworks:
    """A network in float32 and in 8 bits, and what they answer to the same samples.

    Attributes:
        imported: The network in float32.
        model:    The quantised model.
        samples:  Its test set.
        relative: Largest difference of the float network from onnxruntime on random inputs, of the largest output.
        real:     float64[samples, outputs] of the float network.
        golden:   float64[samples, outputs] in golden arithmetic.
        seconds:  Wall times of the import and of the quantisation.
    """

    imported: Imported
    model: Model
    samples: DataSet
    relative: float
    real: np.ndarray
    golden: np.ndarray
    seconds: tuple[float, float]

    @property
    def decibels(self) -> float:
        """Signal to quantisation noise of the outputs."""
        return float(10 * np.log10(np.square(self.real).sum() / np.square(self.real - self.golden).sum()))

    def accuracies(self, chosen: np.ndarray) -> list[float]:
        """Accuracies of the float network and of golden arithmetic on some of the samples."""
        labels = self.samples.test.labels
        return [float((made.argmax(1) == labels)[chosen].mean()) for made in (self.real, self.golden)]


def brought(
    name: str, file: Path, features: Path | None, count: int, console: Console, bits: tuple[int, int] = (8, 8)
) -> tuple[TinyNetworks, np.ndarray]:
    """Import a network and quantise it.

    Returns:
        The network, and bool[samples], which samples of its test set have found the ranges.
    """
    began = time.perf_counter()
    imported = read(file)
    seconds = time.perf_counter() - began
    net = replace(imported.network, name=name)
    data, chosen = data_of(name, net.shape, features, count)
    console.print(f"{name}: {file}, {len(data.calibration)} samples to calibrate")
    began = time.perf_counter()
    with shown() as show:
        model = in_eight_bits(OUT, net, data, COMMAND, show) if bits == (8, 8) else in_few_bits(
            net, data, *bits, show)
    seconds = seconds, time.perf_counter() - began
    console.print(f"{name}: golden and float arithmetic on {len(data.test):,} samples")
    real, golden = answers(imported, model, data)
    relative = difference(imported)
    return TinyNetworks(imported=imported, model=model, samples=data, relative=relative, real=real, golden=golden,
                        seconds=seconds), chosen


def in_eight_bits(
    folder: Path, net: Graph, data: DataSet, command: str, progress: Progress = silent,
) -> Model:
    """Bring a network to 8 bits by post-training quantisation, and write its model file into a folder."""
    choices = Choices(recipe=RECIPE)
    return quantize(folder / f"{net.name}.safetensors", opened(net, data, choices), choices, command=command,
                    progress=progress)


def in_few_bits(net: Graph, data: DataSet, bits: int, entering: int, progress: Progress) -> Model:
    """Bring a network to fewer bits, but for its own input, by the methods that `nnp quantize` chooses for them."""
    first = {part.name: (bits, entering) for part in plan(net).parts if INPUT in part.sources}
    choices = QuantizationOptions(weights_bits=bits, input_bits=bits, layers=first).choices()
    return quantize(OUT / f"{net.name}-{bits}.safetensors", opened(net, data, choices), choices, command=COMMAND,
                    progress=progress)


def answers(imported: Imported, model: Model, data: DataSet) -> tuple[np.ndarray, np.ndarray]:
    """float64[samples, outputs] of the float network and of golden arithmetic for a test set."""
    inputs = data.test.inputs
    parts = np.array_split(inputs.view(np.float16), -(-len(inputs) // TOGETHER))
    real = np.concatenate([imported.network.run(part.reshape(-1, *data.shape)) for part in parts])
    return real, network.outputs(model, inputs, together=TOGETHER).view(np.float16).astype(np.float64)


def onnxruntime_accuracy(imported: Imported, data: DataSet) -> float:
    """Accuracy of the file itself; features of one channel lie in it as they do in the data set."""
    import onnxruntime

    session = onnxruntime.InferenceSession(imported.model.SerializeToString(), providers=["CPUExecutionProvider"])
    entry = session.get_inputs()[0]
    inputs = data.test.inputs.view(np.float16).astype(np.float32).reshape(-1, *entry.shape[1:])
    return float((session.run(None, {entry.name: inputs})[0].argmax(1) == data.test.labels).mean())


def fitting(model: Model, names: list[str]) -> str:
    """Name of the first machine that a model fits.

    Raises:
        ValueError: it fits none; the message is that of the last one.
    """
    for name in names:
        try:
            compile_network(model, preset(name))
            return name
        except ValueError as error:
            refusal = error
    raise ValueError(f"{model.name} on {names[-1]}: {refusal}")


def error_row(name: str, where: str, found: TinyNetworks) -> list[str]:
    """Cells of the table of errors: the chains without quantisers beside onnxruntime, and the parts of the error."""
    firmware = compile_network(found.model, preset(where)).firmware
    images = images_of(found.model, firmware)
    samples = found.samples.test.first(SPLIT)
    machine = UnquantizedMachine(firmware, images[MemoryNumbers.REAL])
    theirs, ours = outputs(
        found.imported, samples.inputs.view(np.float16).astype(np.float64).reshape(len(samples), *found.samples.shape),
        np.stack([machine.infer(sample) for sample in samples.inputs]))
    parts = split_errors(found.model, firmware, images, samples).layers[OUTPUT]
    return [PUBLISHED[name].title, f"{np.abs(ours - theirs).max() / np.abs(theirs).max():.1e}",
            *(f"{parts[part]:.2g}" for part in PARTS)]


def error_table() -> Table:
    """The table with the parts of the error of each network's outputs."""
    made = Table(title="errors of the outputs, relative", title_justify="left")
    for title in ("network", "unquantised, from onnxruntime", *PARTS):
        made.add_column(title, justify="left" if title == "network" else "right")
    return made


def table() -> Table:
    """The table with one row for each network."""
    made = Table(title="from the published file to the simulated hardware, one core", title_justify="left")
    for title in ("network", "preset", "differing bits", "samples", "from onnxruntime", "golden, dB", "same class",
                  "cycles", "products", "of peak", "import, s", "PTQ, s", "compile, s", "golden, s", "simulated, s"):
        made.add_column(title, justify="left" if title in ("network", "preset") else "right")
    return made


def row(name: str, where: str, found: TinyNetworks, measured: Measurement, count: int) -> list[str]:
    """Cells of the table for one network."""
    useful, seconds = sum(map(measured.useful, measured.costs)), measured.seconds
    same = found.real.argmax(1) == found.golden.argmax(1)
    return [PUBLISHED[name].title, where, f"{measured.bits:,}", str(count), f"{found.relative:.1e}",
            f"{found.decibels:.1f}", "-" if name == "ad" else f"{same.mean():.1%}", f"{measured.cycles:,}",
            f"{useful:,}", f"{measured.of_peak(useful, measured.cycles):.1%}", *(f"{s:.1f}" for s in found.seconds),
            *(f"{seconds[kind]:.2f}" for kind in ("compile", "golden", "library"))]


def accuracy_table(found: TinyNetworks, chosen: np.ndarray, onnx: float) -> Table:
    """Accuracies of keyword spotting, whose calibration set is a part of the test set."""
    bits = found.model.layers[0].weights_format.bits
    made = Table("features", "onnxruntime", "float network", f"golden, {bits} bits", title_justify="left",
                 title="accuracy of keyword spotting")
    everything = np.ones_like(chosen)
    for title, part, theirs in ((f"all {len(chosen):,}", everything, f"{onnx:.2%}"),
                                (f"the {(~chosen).sum():,} that did not calibrate", ~chosen, "")):
        made.add_row(title, theirs, *(f"{share:.2%}" for share in found.accuracies(part)))
    return made


@sentences
def main(
    models: Annotated[Path, typer.Option(
        "--models", help=f"Folder of .tflite or .onnx files, of {MODELS_SOURCE}.", show_default=False)],
    data: Annotated[Path | None, typer.Option(
        "--data", help=f"Folder of features for keyword spotting, of {DATA_SOURCE}.",
        show_default="inputs from a seed")] = None,
    networks: Annotated[list[str] | None, typer.Option(
        "--network", help=f"{', '.join(PUBLISHED)}; may be repeated.", show_default="all")] = None,
    presets: Annotated[list[str] | None, typer.Option(
        "--preset", help="Machine; of several, the first one that a network fits.",
        show_default=", ".join(PRESETS))] = None,
    features: Annotated[int, typer.Option(help="Number of features that run on RTL.", min=1)] = 200,
    count: Annotated[int, typer.Option("--samples", help="Number of inputs from a seed that run on RTL.", min=1)] = 8,
    bits: Annotated[int, typer.Option(
        help="Bits of weights and inputs; other than 8, accuracy alone is measured.", min=2, max=8)] = 8,
    entering: Annotated[int, typer.Option(
        "--input-bits", help="Bits of the network's own input, where --bits is not 8.", min=2, max=8)] = 8,
    converter: Annotated[str, typer.Option(
        help="Python that has tf2onnx and TensorFlow, for .tflite files.", show_default="this one")] = sys.executable,
):
    """Bring the trained networks of MLPerf Tiny to RTL, and print tables.

    The exit code is 1 if a bit differs, or if keyword spotting is below 90.0 %.
    """
    console, began = Console(width=None if sys.stdout.isatty() else 220), time.perf_counter()
    torch.set_num_threads(1)
    entering = 8 if bits == 8 else entering
    if unknown := set(networks or ()) - set(PUBLISHED):
        raise ValueError(f"there is no network {min(unknown)!r}: choose of {', '.join(PUBLISHED)}")
    if not models.is_dir():
        raise ValueError(f"{models}: there is no such folder; the files are in {MODELS_SOURCE}")
    for name in presets or PRESETS:
        preset(name)
    features_in = feature_folder(data) if data and "kws" in (networks or PUBLISHED) else None
    files = {name: onnx_file(PUBLISHED[name], models, OUT, converter) for name in networks or PUBLISHED}
    results, errors, good = table(), error_table(), True
    for name, file in files.items():
        found, chosen = brought(name, file, features_in, count, console, (bits, entering))
        if found.samples.task is Task.CLASSIFICATION:
            everything = np.ones_like(chosen)
            console.print(accuracy_table(found, chosen, onnxruntime_accuracy(found.imported, found.samples)))
            good &= found.accuracies(everything)[1] >= GOAL or bits < 8
        else:
            console.print(f"{name}: inputs from a seed; accuracy is not measured")
        if bits < 8:
            console.print(f"{name}: outputs {found.decibels:.1f} dB, {found.seconds[1]:.0f} s")
            continue
        where, tried = fitting(found.model, list(presets or PRESETS)), features if chosen.any() else count
        console.print(f"{name}: building {where}, and running {tried} samples")
        build("library", preset(where))
        with shown() as show:
            measured = measure(found.model, preset(where), found.samples.test.inputs[:tried], show=show)
        good &= not measured.bits
        results.add_row(*row(name, where, found, measured, tried))
        errors.add_row(*error_row(name, where, found))
        console.print(f"{name}: {measured.bits} differing bits in {tried} samples on {where}")
    if bits == 8:
        console.print(results, errors)
    console.print(f"{time.perf_counter() - began:.0f} s")
    raise typer.Exit(0 if good else 1)


if __name__ == "__main__":
    typer.run(main)
