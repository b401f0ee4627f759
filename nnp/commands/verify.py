"""`nnp verify`: the main job."""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from concord.nnp.lib.options import First, Machine, MachineKind, Preset, Samples
from concord.nnp.lib.storage import fetched


def verify(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL]...", help="Model files or URLs.", show_default="the shipped models"),
    ] = None,
    samples: Samples = "200",
    first: First = 0,
    preset: Preset = "",
    machine: Machine = MachineKind.LIBRARY,
    report: Annotated[Path, typer.Option("--report", help="Folder for the report and its tables.")] = Path(
        "build/report"
    ),
    waves: Annotated[
        bool, typer.Option(help="Write a waveform of the first difference, which needs another build of the machine.")
    ] = True,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Worker processes.")] = os.cpu_count() or 1,
):
    """Run quantised models on golden and on the simulated machine, and compare every bit.

    Exit code 1 where a bit or an event counter differs.
    """
    from concord.model.dataset import DATA
    from concord.model.model_file import load_model
    from concord.nnp.lib.presets import compile_for
    from concord.nnp.verify.builds import Builds
    from concord.nnp.verify.report import write_report
    from concord.nnp.verify.tables import faults, verify_table
    from concord.nnp.verify.verification import Request, verify_model
    from rich.console import Console

    console = Console()
    places = models or [str(path) for path in sorted((DATA / "models").glob("*.safetensors"))]
    if not places:
        raise ValueError(f"{DATA / 'models'} holds no models: name one, or train one with `nnp train`")
    with ExitStack() as files:
        paths = [files.enter_context(fetched(place)) for place in places]
        # What cannot be compiled is told before any slow work.
        configs = [compile_for(load_model(path), preset)[1].firmware.config for path in paths]
        requests = [
            Request(path=path, place=place, samples=samples, first=first, preset=preset, kind=machine, jobs=jobs,
                    folder=report, waves=waves)
            for path, place in zip(paths, places, strict=True)
        ]
        with Builds(machine, configs) as builds:
            done = [verify_model(request, builds, console) for request in requests]
    console.print(verify_table(done))
    written = write_report(done, report)
    console.print("report: " + ", ".join(str(path) for path in written))
    for line in faults(done):
        typer.echo(f"nnp: {line}", err=True)
    raise typer.Exit(0 if all(verified.equal for verified in done) else 1)
