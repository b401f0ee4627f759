"""`nnp twin`: writes firmware back as source text of a software twin, which returns the same bits."""

from pathlib import Path
from typing import Annotated

import typer
from concord.nnp.lib.options import First, Inputs, TestData

CHECKED = 3  #: Number of samples that are compared with golden if `--samples` is not given.


def twin(
    firmware: Annotated[
        Path, typer.Argument(metavar="FIRMWARE", help="Firmware file from `nnp compile` or `nnp asm`.",
                             show_default=False)],
    to: Annotated[str, typer.Option(
        "--to", metavar="FRAMEWORK", help="What the twin runs in: numpy, torch or tensorflow.")] = "numpy",
    output: Annotated[Path | None, typer.Option(
        "-o", help="Folder to write to; build/twin if not given.", show_default=False)] = None,
    plain: Annotated[bool, typer.Option(
        "--plain", help="Leave out the names that the firmware carries, and recover its layers from its program alone."
    )] = False,
    samples: Annotated[str | None, typer.Option(
        "--samples", help="Number of samples that are compared with golden, or 'all'.",
        show_default="3, or as many as there are")] = None,
    first: First = 0,
    inputs: Inputs = None,
    data: TestData = None,
):
    """Write a program for another processor that returns the bits of firmware, and compare some samples with golden."""
    from concord.golden.host.firmware_file import load_firmware
    from concord.nnp.lib.files import check_writable
    from concord.nnp.lib.options import named
    from concord.nnp.lib.steps import Steps
    from concord.nnp.verify.inputs import Source, read
    from concord.nnp.verify.session import Session
    from concord.nnp.verify.twin_source import TwinSource, differing, installed
    from concord.sim.machines import host
    from concord.twin.recovery.elements import Unrecognised
    from concord.twin.recovery.recover import recover
    from concord.twin.source.frameworks import FORMS, Framework, example
    from concord.twin.source.hints import without_hints
    from concord.twin.source.twin_file import module_name, write_twin
    from concord.twin.weights import trainable
    from rich.console import Console

    framework = named(Framework, to)
    source = Source(inputs=inputs, data=data, samples=samples, first=first, default=CHECKED)
    loaded = load_firmware(firmware)
    folder = output or Path("build/twin")
    check_writable(folder, folder=True)
    stem = f"{module_name(loaded.name or firmware.stem)}_{framework}"
    for suffix in (".py", ".safetensors"):
        check_writable(folder / f"{stem}{suffix}")
    given = read(loaded, source)
    for words in given.remarks:
        typer.echo(f"nnp: {words}", err=True)
    steps = Steps(Console(stderr=True), 2)
    with steps.step("recover layers", announce=f"{len(loaded.instruction_words)} instructions"):
        try:
            script = recover(without_hints(loaded) if plain else loaded)
        except Unrecognised as error:
            raise ValueError(f"{firmware}: {error}; nnp run --twin compares any program with a twin word by word"
                             ) from error
        trained = trainable(script, loaded) if FORMS[framework].trains else {}
        path = write_twin(script, framework, folder, stem, trained)
    lines = len(path.read_text().splitlines())
    tensors = path.with_suffix(".safetensors")
    typer.echo(f"{path}: {lines} lines; {tensors}: {tensors.stat().st_size:,} bytes")
    typer.echo(f"It needs {FORMS[framework].needs}. Run it: cd {folder}; {example(framework, stem, script.inputs)}")
    if not installed(framework):
        typer.echo(f"nnp: {framework} is not installed here, so that the twin was not compared with golden", err=True)
        return
    bits = 0
    with (steps.step("compare with golden", announce=f"{len(given.samples)} samples"),
          host.machine("golden", loaded.config) as machine):
        session, written = Session(machine, loaded), TwinSource(path, framework)
        for _, sample in given:
            bits += differing(session.infer(sample)[None], written.infer(sample[None]))
    typer.echo(f"{bits} differing bits over {len(given.samples)} samples of {given.name}, twin and golden")
    if bits:
        raise typer.Exit(1)
