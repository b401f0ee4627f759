"""`nnp twin`: writes firmware back as source text of a software twin, which returns the same bits, or in float64."""

from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer
from concord.nnp.lib.options import First, Inputs, TestData

if TYPE_CHECKING:
    from concord.golden.host.cascade import Cascade
    from concord.golden.host.firmware import Firmware
    from concord.golden.unquantised import UnquantisedMachine
    from concord.nnp.verify.inputs import Inputs as Given
    from concord.nnp.verify.twin_source import TwinSource
    from concord.twin.lib.script import Script
    from concord.twin.source.frameworks import Framework

CHECKED = 3  #: Number of samples that are compared with golden if `--samples` is not given.


def twin(
    firmware: Annotated[
        Path, typer.Argument(metavar="FIRMWARE", help="Firmware file from `nnp compile` or `nnp asm`.",
                             show_default=False)],
    to: Annotated[str, typer.Option(
        "--to", metavar="FRAMEWORK", help="What the twin runs in: numpy, torch, tensorflow, or onnx (a graph).",
    )] = "numpy",
    output: Annotated[Path | None, typer.Option(
        "-o", help="Folder to write to; build/twin if not given.", show_default=False)] = None,
    plain: Annotated[bool, typer.Option(
        "--plain", help="Leave out the names that the firmware carries, and recover its layers from its program alone."
    )] = False,
    unquantised: Annotated[bool, typer.Option(
        "--unquantised", help="Write a twin that computes in float64 with all quantisers off. The firmware must be "
                              "compiled with --full-precision."
    )] = False,
    samples: Annotated[str | None, typer.Option(
        "--samples", help="Number of samples that are compared with golden, or 'all'.",
        show_default="3, or as many as there are")] = None,
    first: First = 0,
    inputs: Inputs = None,
    data: TestData = None,
):
    """Write a program for another processor that returns the bits of firmware, and compare some samples with golden."""
    from concord.golden.unquantised import UnquantisedMachine
    from concord.nnp.lib.options import named
    from concord.nnp.lib.steps import Steps
    from concord.nnp.verify.cascade_session import opened
    from concord.nnp.verify.inputs import Source, read_or_draw
    from concord.nnp.verify.twin_source import TwinSource, installed
    from concord.twin.source.frameworks import Framework, example, needs
    from concord.twin.source.twin_file import module_name
    from rich.console import Console

    framework = named(Framework, to)
    source = Source(inputs=inputs, data=data, samples=samples, first=first, default=CHECKED)
    loaded = opened(firmware)
    program = _program(firmware, loaded, unquantised)
    folder = output or Path("build/twin")
    stem = f"{module_name(loaded.name or firmware.stem)}{'_unquantised' * unquantised}_{framework}"
    _check(framework, folder, stem, unquantised)
    real = UnquantisedMachine(loaded) if unquantised else None
    given = read_or_draw(loaded, source)
    for words in given.remarks:
        typer.echo(f"nnp: {words}", err=True)
    steps = Steps(Console(stderr=True), 2)
    with steps.step("recover layers", announce=f"{len(program.instruction_words)} instructions"):
        script = _script(firmware, program, framework, plain, unquantised)
        trains = not unquantised and program is loaded
        script = script if program is loaded else replace(script, machine=_machines(loaded))
        path = _write(script, program, framework, folder / stem, trains)
    typer.echo("; ".join(_written(path)))
    command = f"cd {quote(str(folder))}; {example(framework, stem, script.inputs)}"
    typer.echo(f"It needs {needs(framework)}. Run it: {command}")
    if not installed(framework):
        typer.echo(f"nnp: {needs(framework)}: not installed here, so the twin was not compared with golden", err=True)
        return
    arithmetic = " in float64" if unquantised else ""
    with steps.step(f"compare with golden{arithmetic}", announce=f"{len(given.samples)} samples"):
        written = TwinSource(path, framework)
        equal, said = _distance(real, written, given) if real else _bits(loaded, written, given)
    typer.echo(said)
    if not equal:
        raise typer.Exit(1)


def _check(framework: "Framework", folder: Path, stem: str, unquantised: bool):
    """Refuse what cannot be written."""
    from importlib.util import find_spec

    from concord.nnp.lib.files import check_writable
    from concord.twin.source.frameworks import Framework

    if framework is Framework.ONNX:
        if unquantised:
            raise ValueError("--unquantised writes source: --to numpy, torch or tensorflow")
        if find_spec("onnx") is None:
            raise ValueError("--to onnx needs the package onnx: pip install '.[front]' in a clone installs it")
    check_writable(folder, folder=True)
    for suffix in (".py", ".safetensors", ".onnx"):
        check_writable(folder / f"{stem}{suffix}")


def _program(place: Path, loaded: "Firmware | Cascade", unquantised: bool) -> "Firmware":
    """The program that is written back: that of firmware, or those of several machines as one."""
    from concord.golden.host.cascade import Cascade
    from concord.twin.flow.joined import joined

    if not isinstance(loaded, Cascade):
        return loaded
    if unquantised:
        raise ValueError(f"{place} is firmware of several machines, which carries no numbers in full precision: "
                         "compile the model for one machine, with --full-precision")
    return joined(loaded)


def _machines(loaded: "Cascade") -> str:
    """What a twin calls the machines of firmware."""
    from concord.spec.config import preset_name

    return ", ".join(preset_name(part.config) or f"{part.config.digest:08x}" for part in loaded.parts)


def _script(place: Path, firmware: "Firmware", framework: "Framework", plain: bool, unquantised: bool) -> "Script":
    """The script of layers, or the one of words where no layers are found and the framework can run it."""
    from concord.twin.generic.network import network
    from concord.twin.recovery.nodes.elements import Unrecognised
    from concord.twin.recovery.recover import recover
    from concord.twin.source.frameworks import Framework
    from concord.twin.source.hints import without_hints

    try:
        return recover(without_hints(firmware) if plain else firmware, unquantised=unquantised)
    except Unrecognised as error:
        if unquantised:
            raise ValueError(f"{place}: {error}, so that no layers are found, and only layers can be computed "
                             "without quantisers; leave out --unquantised") from error
        if framework not in (Framework.NUMPY, Framework.TORCH) or firmware.loop is not None:
            raise ValueError(f"{place}: {error}; `nnp run --twin` compares any program with a twin word by "
                             "word, and --to numpy or torch writes one where inputs have one size") from error
        typer.echo(f"nnp: {error}, so that the twin is written word by word instead of layer by layer", err=True)
        return network(firmware)


def _write(script: "Script", firmware: "Firmware", framework: "Framework", stem: Path, trains: bool) -> Path:
    """Write the twin, which may be trained if firmware can take its weights; returns the path of source or graph."""
    from concord.twin.source.frameworks import FORMS
    from concord.twin.source.twin_file import write_twin
    from concord.twin.weights import trainable

    trains = trains and framework in FORMS and FORMS[framework].trains
    return write_twin(script, framework, stem.parent, stem.name, trainable(script, firmware) if trains else {})


def _distance(real: "UnquantisedMachine", written: "TwinSource", given: "Given") -> tuple[bool, str]:
    """Whether the twin is golden without quantisers, and how far it is from it."""
    import numpy as np
    from concord.nnp.verify.twin_source import CLOSE, distance

    found = [(real.infer(sample), written.numbers(sample[None]).reshape(-1)) for _, sample in given]
    error = distance(*(np.stack(each) for each in zip(*found, strict=True)))
    return error <= CLOSE, (f"relative difference {error:.1e}, of the largest output over {len(given.samples)} samples "
                            f"of {given.name}, twin and golden without quantisers")


def _bits(firmware: "Firmware | Cascade", written: "TwinSource", given: "Given") -> tuple[bool, str]:
    """Whether the twin has golden's bits, and how many differ."""
    from concord.nnp.verify.cascade_session import session_of
    from concord.nnp.verify.twin_source import differing

    with session_of(firmware, "golden") as session:
        bits = sum(differing(session.infer(sample)[None], written.infer(sample[None])) for _, sample in given)
    return not bits, f"{bits} differing bits over {len(given.samples)} samples of {given.name}, twin and golden"


def _written(path: Path) -> list[str]:
    """What has been written: source and its tensors, or a graph."""
    if path.suffix == ".onnx":
        return [f"{path}: {path.stat().st_size:,} bytes"]
    tensors = path.with_suffix(".safetensors")
    return [f"{path}: {len(path.read_text().splitlines())} lines", f"{tensors}: {tensors.stat().st_size:,} bytes"]
