"""`nnp twin`: writes firmware back as source text of a software twin, which returns the same bits, or in float64."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from concord.nnp.lib.options import First, Inputs, TestData

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
    from importlib.util import find_spec

    import numpy as np
    from concord.golden.host.firmware_file import load_firmware
    from concord.golden.unquantised import UnquantisedMachine
    from concord.nnp.lib.files import check_writable
    from concord.nnp.lib.options import named
    from concord.nnp.lib.steps import Steps
    from concord.nnp.verify.inputs import Source, drawn, read
    from concord.nnp.verify.session import Session
    from concord.nnp.verify.twin_source import CLOSE, TwinSource, differing, distance, installed
    from concord.sim.machines import host
    from concord.twin.generic.network import network
    from concord.twin.recovery.elements import Unrecognised
    from concord.twin.recovery.recover import recover
    from concord.twin.source.frameworks import FORMS, Framework, example, needs
    from concord.twin.source.hints import without_hints
    from concord.twin.source.twin_file import module_name, write_twin
    from concord.twin.weights import trainable
    from rich.console import Console

    framework = named(Framework, to)
    source = Source(inputs=inputs, data=data, samples=samples, first=first, default=CHECKED)
    if unquantised and framework is Framework.ONNX:
        raise ValueError("--unquantised writes source: --to numpy, torch or tensorflow")
    loaded = load_firmware(firmware)
    real = UnquantisedMachine(loaded) if unquantised else None
    folder = output or Path("build/twin")
    check_writable(folder, folder=True)
    stem = f"{module_name(loaded.name or firmware.stem)}{'_unquantised' * unquantised}_{framework}"
    for suffix in (".py", ".safetensors", ".onnx"):
        check_writable(folder / f"{stem}{suffix}")
    if framework is Framework.ONNX and find_spec("onnx") is None:
        raise ValueError("--to onnx needs the package onnx: pip install '.[front]' in a clone installs it")
    own = loaded.data or not loaded.inputs or inputs or data is not None
    given = read(loaded, source) if own else drawn(loaded, source)
    for words in given.remarks:
        typer.echo(f"nnp: {words}", err=True)
    steps = Steps(Console(stderr=True), 2)
    with steps.step("recover layers", announce=f"{len(loaded.instruction_words)} instructions"):
        try:
            script = recover(without_hints(loaded) if plain else loaded, unquantised=unquantised)
        except Unrecognised as error:
            if unquantised:
                raise ValueError(f"{firmware}: {error}, so that no layers are found, and only layers can be computed "
                                 "without quantisers; leave out --unquantised") from error
            if framework not in (Framework.NUMPY, Framework.TORCH) or loaded.loop is not None:
                raise ValueError(f"{firmware}: {error}; `nnp run --twin` compares any program with a twin word by "
                                 "word, and --to numpy or torch writes one where inputs have one size") from error
            typer.echo(f"nnp: {error}, so that the twin is written word by word instead of layer by layer", err=True)
            script = network(loaded)
        trains = framework in FORMS and FORMS[framework].trains and not unquantised
        trained = trainable(script, loaded) if trains else {}
        path = write_twin(script, framework, folder, stem, trained)
    typer.echo("; ".join(_written(path)))
    run = f"cd {quote(str(folder))}; {example(framework, stem, script.inputs)}"
    typer.echo(f"It needs {needs(framework)}. Run it: {run}")
    if not installed(framework):
        typer.echo(f"nnp: {needs(framework)}: not installed here, so the twin was not compared with golden", err=True)
        return
    written = TwinSource(path, framework)
    if real:
        with steps.step("compare with golden in float64", announce=f"{len(given.samples)} samples"):
            found = [(real.infer(sample), written.numbers(sample[None]).reshape(-1)) for _, sample in given]
        error = distance(*(np.stack(each) for each in zip(*found, strict=True)))
        typer.echo(f"relative difference {error:.1e}, of the largest output over {len(given.samples)} samples of "
                   f"{given.name}, twin and golden without quantisers")
        if not error <= CLOSE:
            raise typer.Exit(1)
        return
    bits = 0
    with (steps.step("compare with golden", announce=f"{len(given.samples)} samples"),
          host.machine("golden", loaded.config) as machine):
        session = Session(machine, loaded)
        for _, sample in given:
            bits += differing(session.infer(sample)[None], written.infer(sample[None]))
    typer.echo(f"{bits} differing bits over {len(given.samples)} samples of {given.name}, twin and golden")
    if bits:
        raise typer.Exit(1)


def _written(path: Path) -> list[str]:
    """What has been written: source and its tensors, or a graph."""
    if path.suffix == ".onnx":
        return [f"{path}: {path.stat().st_size:,} bytes"]
    tensors = path.with_suffix(".safetensors")
    return [f"{path}: {len(path.read_text().splitlines())} lines", f"{tensors}: {tensors.stat().st_size:,} bytes"]
