"""`nnp twin`: writes firmware back as source text of a software twin, which returns the same bits, or in float64."""

from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer
from concord.nnp.lib.options import AxesOrder, First, Inputs, TestData
from concord.twin.source.frameworks import Framework

if TYPE_CHECKING:
    from concord.firmware.cascade import Cascade
    from concord.firmware.firmware import Firmware
    from concord.firmware.unquantized import UnquantizedMachine
    from concord.twin.lib.script import Script
    from concord.verification.inputs import Inputs as Given
    from concord.verification.twins import TwinSource

CHECKED = 3  #: Number of samples that are compared with golden if `--samples` is not given.


def twin(
    firmware: Annotated[
        Path, typer.Argument(metavar="FIRMWARE", help="Firmware file from `nnp compile` or `nnp asm`.",
                             show_default=False)],
    to: Annotated[str, typer.Option(
        "--to", metavar="FRAMEWORK", help=f"What the twin runs in: {', '.join(Framework)}.",
    )] = "numpy",
    output: Annotated[Path | None, typer.Option(
        "--out", "-o", help="Folder to write to; build/twin if not given.", show_default=False)] = None,
    plain: Annotated[bool, typer.Option(
        "--plain", help="Leave out the names that the firmware carries, and recover its layers from its program alone."
    )] = False,
    unquantized: Annotated[bool, typer.Option(
        "--unquantized", "--unquantised",
        help="Write a twin that computes in float64 with all quantisers off. The firmware must be compiled with "
             "--full-precision."
    )] = False,
    samples: Annotated[str | None, typer.Option(
        "--samples", help="Number of samples that are compared with golden, or 'all'.",
        show_default="3, or as many as there are")] = None,
    first: First = 0,
    inputs: Inputs = None,
    data: TestData = None,
    order: AxesOrder = None,
):
    """Write a program for another processor that returns the bits of firmware, and compare some samples with golden."""
    from concord.firmware.firmware_file import load_cascade
    from concord.firmware.unquantized import UnquantizedMachine
    from concord.lib.names import named
    from concord.lib.progress import Steps
    from concord.twin.source.frameworks import RUNTIMES, example, installed
    from concord.twin.source.writer import module_name
    from concord.verification.inputs import InputSource, read_or_draw
    from concord.verification.twins import TwinSource
    from rich.console import Console

    framework = named(Framework, to)
    source = InputSource(inputs=inputs, data=data, samples=samples, first=first, order=order, default=CHECKED)
    loaded = load_cascade(firmware)
    program = _program(firmware, loaded, unquantized)
    folder = output or Path("build/twin")
    stem = f"{module_name(loaded.name or firmware.stem)}{'_unquantized' * unquantized}_{framework}"
    _check(framework, folder, stem, unquantized)
    real = UnquantizedMachine(loaded.first) if unquantized else None
    given = read_or_draw(loaded, source)
    for words in given.remarks:
        typer.echo(f"nnp: {words}", err=True)
    steps = Steps(Console(stderr=True), 2)
    with steps.step("recover layers", announce=f"{len(program.instruction_words)} instructions"):
        script = _script(firmware, program, framework, plain, unquantized)
        several = len(loaded.parts) > 1
        trains = not unquantized and not several
        script = replace(script, machine=_machines(loaded)) if several else script
        path = _write(script, program, framework, folder / stem, trains)
    typer.echo("; ".join(_written(path)))
    if loaded.table is not None:
        typer.echo(f"It takes vectors of an embedding; their table of {len(loaded.table)} rows stays in the firmware")
    command = f"cd {quote(str(folder))}; {example(framework, stem, script.inputs)}"
    needs = RUNTIMES[framework].needs
    typer.echo(f"It needs {needs}. Run it: {command}")
    if not installed(framework):
        typer.echo(f"nnp: {needs}: not installed here, so the twin was not compared with golden", err=True)
        return
    arithmetic = " in float64" if unquantized else ""
    with steps.step(f"compare with golden{arithmetic}", announce=f"{len(given.samples)} samples"):
        written = TwinSource(path, framework)
        equal, said = _distance(real, written, given) if real else _bits(loaded, written, given)
    typer.echo(said)
    if not equal:
        raise typer.Exit(1)


def _check(framework: Framework, folder: Path, stem: str, unquantized: bool):
    """Refuse what cannot be written."""
    from concord.lib.extras import require
    from concord.lib.files import check_writable
    from concord.twin.source.frameworks import RUNTIMES

    runtime = RUNTIMES[framework]
    if unquantized and not runtime.real:
        *others, last = (name for name, each in RUNTIMES.items() if each.real)
        raise ValueError(f"--unquantised writes source: --to {', '.join(others)} or {last}")
    if runtime.writer:
        require("front")
    check_writable(folder, folder=True)
    for suffix in (".py", ".safetensors", ".onnx"):
        check_writable(folder / f"{stem}{suffix}")


def _program(path: Path, loaded: "Cascade", unquantized: bool) -> "Firmware":
    """The program that is written back; the programs of several machines become one."""
    from concord.twin.flow.joined import joined

    if len(loaded.parts) == 1:
        return loaded.first
    if unquantized:
        raise ValueError(f"{path} is firmware of several machines, which carries no numbers in full precision: "
                         "compile the model for one machine, with --full-precision")
    return joined(loaded)


def _machines(loaded: "Cascade") -> str:
    """What a twin calls the machines of firmware."""
    from concord.spec.machine.config import preset_name

    return ", ".join(preset_name(part.config) or f"{part.config.digest:08x}" for part in loaded.parts)


def _script(path: Path, firmware: "Firmware", framework: Framework, plain: bool, unquantized: bool) -> "Script":
    """The script of layers, or the one of words where no layers are found and the framework can run it."""
    from concord.twin.generic.generic import network
    from concord.twin.recovery.nodes.elements import Unrecognised
    from concord.twin.recovery.recover import recover, without_hints
    from concord.twin.source.frameworks import RUNTIMES

    try:
        return recover(without_hints(firmware) if plain else firmware, unquantized=unquantized)
    except Unrecognised as error:
        if unquantized:
            raise ValueError(f"{path}: {error}, so that no layers are found, and only layers can be computed "
                             "without quantisers; leave out --unquantised") from error
        if not RUNTIMES[framework].words or firmware.loop is not None:
            names = " or ".join(name for name, each in RUNTIMES.items() if each.words)
            raise ValueError(f"{path}: {error}; `nnp run --twin` compares any program with a twin word by "
                             f"word, and --to {names} writes one where inputs have one size") from error
        typer.echo(f"nnp: {error}, so that the twin is written word by word instead of layer by layer", err=True)
        return network(firmware)


def _write(script: "Script", firmware: "Firmware", framework: Framework, stem: Path, trains: bool) -> Path:
    """Write the twin, which may be trained if firmware can take its weights; returns the path of source or graph."""
    from concord.twin.source.frameworks import FORMS
    from concord.twin.source.writer import write_twin
    from concord.twin.weights import trainable

    trains = trains and framework in FORMS and FORMS[framework].trains
    return write_twin(script, framework, stem.parent, stem.name, trainable(script, firmware) if trains else {})


def _distance(real: "UnquantizedMachine", written: "TwinSource", given: "Given") -> tuple[bool, str]:
    """Whether the twin is golden without quantisers, and how far it is from it."""
    import numpy as np
    from concord.verification.twins import CLOSE, distance

    found = [(real.infer(sample), written.numbers(sample[None]).reshape(-1)) for _, sample in given]
    error = distance(*(np.stack(each) for each in zip(*found, strict=True)))
    return error <= CLOSE, (f"relative difference {error:.1e}, of the largest output over {len(given.samples)} samples "
                            f"of {given.name}, twin and golden without quantisers")


def _bits(firmware: "Cascade", written: "TwinSource", given: "Given") -> tuple[bool, str]:
    """Whether the twin has golden's bits, and how many differ."""
    from concord.firmware.cascade_session import session_of
    from concord.verification.twins import KEPT, differing

    with session_of(firmware, "golden") as session:
        found = [(differing(session.infer(sample)[None], written.infer(sample[None])), sample) for _, sample in given]
    bits, first = sum(bits for bits, _ in found), next((sample for bits, sample in found if bits), None)
    said = f"{bits} differing bits over {len(given.samples)} samples of {given.name}, twin and golden"
    if first is not None:
        with session_of(firmware, "golden") as session:
            alone = differing(session.infer(first)[None], written.infer(first[None]))
        said += "" if alone else f"; {KEPT}"
    return not bits, said


def _written(path: Path) -> list[str]:
    """What has been written: source and its tensors, or a graph."""
    if path.suffix == ".onnx":
        return [f"{path}: {path.stat().st_size:,} bytes"]
    tensors = path.with_suffix(".safetensors")
    return [f"{path}: {len(path.read_text().splitlines())} lines", f"{tensors}: {tensors.stat().st_size:,} bytes"]
