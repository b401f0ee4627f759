"""`nnp verify`: runs quantised models on golden and on the simulated machine, and compares every bit."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from concord.nnp.lib.options import CORES, First, Inputs, Jobs, Machine, MachineKind, ManySamples, Preset, TestData
from concord.nnp.lib.storage import fetched


def verify(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL]...", help="Model files or URLs.", show_default="the shipped models"),
    ] = None,
    inputs: Inputs = None,
    data: TestData = None,
    samples: ManySamples = None,
    first: First = 0,
    preset: Preset = "",
    machine: Machine = MachineKind.LIBRARY,
    report: Annotated[Path, typer.Option("--report", help="Folder to write the report and its tables to.")] = Path(
        "build/report"
    ),
    waves: Annotated[
        bool, typer.Option(
            help="Write a waveform of the first difference, if any, which takes another build of the machine.")
    ] = True,
    layers: Annotated[
        bool, typer.Option("--layers", help="Print cycles, utilisation and waits of each layer, too.")] = False,
    jobs: Jobs = CORES,
):
    """Run quantised models on golden and on the simulated machine, and compare every bit.

    The exit code is 1 if a bit or an event counter differs.
    """
    from concord.model.data.dataset import DATA
    from concord.nnp.lib.files import check_writable
    from concord.nnp.verify.builds import Builds
    from concord.nnp.verify.inputs import Source
    from concord.nnp.verify.report import write_report
    from concord.nnp.verify.tables import cost_table, faults, verify_table, without_costs
    from concord.nnp.verify.verification import Request, prepare, verify_model
    from rich.console import Console

    console = Console()
    source = Source(inputs=inputs, data=data, samples=samples, first=first, default=200)
    check_writable(report, folder=True)
    places = models or [str(path) for path in sorted((DATA / "models").glob("*.safetensors"))]
    if not places:
        raise ValueError(f"{DATA / 'models'} holds no models: name one, or train one with `nnp train`")
    with ExitStack() as files:
        paths = [files.enter_context(fetched(place)) for place in places]
        requests = [
            Request(path=path, place=place, source=source, preset=preset, kind=machine, jobs=jobs, folder=report,
                    waves=waves)
            for path, place in zip(paths, places, strict=True)
        ]
        # Models that cannot be compiled or run are reported before any slow work.
        ready = [prepare(request, console) for request in requests]
        for words in dict.fromkeys(words for prepared in ready for words in prepared.inputs.remarks):
            typer.echo(f"nnp: {words}", err=True)
        with Builds(machine, [prepared.compiled.firmware.config for prepared in ready]) as builds:
            done = [verify_model(prepared, builds, console) for prepared in ready]
    console.print(verify_table(done))
    for verified in done if layers else ():
        console.print(cost_table(verified) if verified.costs else without_costs(verified))
    written = write_report(done, report)
    console.print("report: " + ", ".join(str(path) for path in written))
    for line in faults(done):
        typer.echo(f"nnp: {line}", err=True)
    raise typer.Exit(0 if all(verified.equal for verified in done) else 1)
