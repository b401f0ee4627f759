"""`nnp verify`: runs networks on golden and on the simulated machine, and compares every bit."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from concord.lib.extras import require
from concord.lib.processes import CORES
from concord.net.quantize.widths import NetworkArithmetic
from concord.nnp.lib.options import (
    Anew,
    AxesOrder,
    Batch,
    Cores,
    Cut,
    First,
    Inputs,
    Jobs,
    KeepState,
    Machine,
    Machines,
    ManySamples,
    OneOutput,
    Preset,
    Scheduler,
    TestData,
)
from concord.sim.machines.kinds import MachineKind
from concord.workflows.storage import fetched

if TYPE_CHECKING:
    from concord.verification.whole import Job, WholeVerification
    from rich.console import Console


def verify(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE]...", help="Quantised models, or networks in float32: ONNX files, and what `nnp "
                                                 "import` wrote. Paths or URLs.", show_default="the shipped models"),
    ] = None,
    inputs: Inputs = None,
    data: TestData = None,
    order: AxesOrder = None,
    output: OneOutput = None,
    samples: ManySamples = None,
    first: First = 0,
    preset: Preset = "",
    machine: Machine = MachineKind.LIBRARY,
    report: Annotated[Path, typer.Option("--report", help="Folder to write the report and its tables to.")] = Path(
        "build/report"
    ),
    waves: Annotated[
        bool | None, typer.Option(
            help="Write a waveform of the first difference, if any, which takes another build of the machine.",
            show_default="waves, on one machine")
    ] = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="Print cycles, utilisation and waits of each layer, too.")] = False,
    errors: Annotated[
        bool, typer.Option(
            "--errors", help="Split the error of each layer into compiler, quantisation of weights and of activations, "
                             "and binary16, and print it.")] = False,
    clock: Annotated[
        float | None, typer.Option(
            "--clock", metavar="MHZ", min=0.001, show_default=False,
            help="Clock of the machine in MHz, by which the table and the report give times beside cycles.")] = None,
    jobs: Jobs = CORES,
    scheduler: Scheduler = "",
    arithmetic: Annotated[
        NetworkArithmetic | None, typer.Option(
            help="Quantise networks in float32 to integers, or to block floating point (bfp).",
            show_default="integer")] = None,
    anew: Anew = False,
    equalize: Annotated[
        bool, typer.Option(
            "--equalize", help="Equalise the channels of networks in float32 before they become integers, as `nnp "
                               "quantize` does.")] = False,
    machines: Machines = 1,
    cut: Cut = "",
    batch: Batch = 1,
    cores: Cores = 1,
    keep_state: KeepState = False,
):
    """Run networks on golden and on the simulated machine, and compare every bit.

    A network in float32 is quantised without training first, by samples of --data, for the machine of --preset or
    for the smallest one that takes it. Its quantised model is kept beside the report.

    With --machines, one model is cut over several machines; so is firmware of `nnp compile --machines`. The table then
    tells the throughput, with samples in all machines, beside that of one machine. With --cores, several machines
    share one memory and take samples in turns (docs/accelerator.md).

    The exit code is 1 if a bit or an event counter differs.
    """
    from concord.datasets.dataset import DATA
    from concord.lib.files import check_writable
    from concord.verification.inputs import InputSource
    from concord.verification.verified import Request
    from concord.verification.whole import Job, ready, verify_all
    from concord.workflows.cascades import Wish
    from concord.workflows.storage import FileKind, kind_of
    from rich.console import Console

    console = Console()
    if machine == MachineKind.GOLDEN and clock is not None:
        raise ValueError("--clock: golden counts no cycles, so that there are no times: leave it out, or take another "
                         "--machine")
    if machine in (MachineKind.LIBRARY, MachineKind.COCOTB):
        require("sim")  # not after a minute of quantising
    source = InputSource(inputs=inputs, data=data, samples=samples, first=first, order=order, default=200)
    check_writable(report, folder=True)
    locations = models or [str(path) for path in sorted((DATA / "models").glob("*.safetensors"))]
    if not locations:
        raise ValueError(f"{DATA / 'models'} holds no models: name one, or train one with `nnp train`")
    with ExitStack() as files:
        paths = [files.enter_context(fetched(location)) for location in locations]
        wish = Wish(machines=machines, cut=cut, batch=batch, cores=cores)
        if cores > 1 and (layers or waves):
            raise ValueError(f"{'--layers' if layers else '--waves'} is for one machine: leave it out, or --cores")
        if machines > 1 or any(kind_of(path) is FileKind.CASCADE for path in paths):
            _check_several(paths, {
                "--errors": errors, "--layers": layers, "--waves": waves, "--keep-state": keep_state})
        jobs_ = [Job(request=Request(
            path=path, location=location, output=output, source=source, preset=preset, kind=machine, jobs=jobs,
            folder=report, waves=waves is not False, wish=wish,
            arithmetic=arithmetic or NetworkArithmetic.INTEGER, anew=anew, equalize=equalize,
            split=errors, clock=clock, keep_state=keep_state, scheduler=scheduler))
            for path, location in zip(paths, locations, strict=True)]
        _check_floating(jobs_, {"--arithmetic": arithmetic, "--anew": anew, "--equalize": equalize, "--output": output})
        prepared = ready(jobs_, console)
        for words in dict.fromkeys(words for one in prepared for words in one.inputs.remarks):
            typer.echo(f"nnp: {words}", err=True)
        whole = verify_all(prepared, console)
    _print(whole, jobs_, console, layers=layers, errors=errors)
    raise typer.Exit(0 if whole.equal else 1)


#: Options of `nnp verify` that are for networks in float32, and what a quantised model has instead.
FLOATING = {
    "--output": "--output chooses an output of an ONNX file: a quantised model gives all that it has, so leave it out",
    "--arithmetic": "--arithmetic is for networks in float32: a quantised model has its own, so leave it out",
    "--anew": "--anew is for ONNX files of networks that are quantised already, so leave it out",
    "--equalize": "--equalize is for networks in float32: a quantised model has its integers, so leave it out",
}


def _check_floating(jobs: "list[Job]", given: dict[str, object]):
    """Refuse options that choose how a network is quantised, where a model is quantised.

    Raises:
        ValueError: a sentence about the first of them.
    """
    for option, value in given.items():
        if value and not all(job.floating for job in jobs):
            raise ValueError(FLOATING[option])


def _print(whole: "WholeVerification", jobs: "list[Job]", console: "Console", *, layers: bool, errors: bool):
    """Print what was found, where the report and the quantised models lie, and each fault on stderr."""
    from concord.verification.tables import cost_table, faults, split_table, verify_table, without_costs

    done = list(whole.done)
    console.print(verify_table(done))
    for verified in done if layers else ():
        console.print(cost_table(verified) if verified.costs else without_costs(verified))
    for verified in done if errors else ():
        console.print(split_table(verified))
    for job, verified in zip(jobs, done, strict=True):
        if job.floating:
            console.print(f"quantised model: {verified.request.path}", markup=False, soft_wrap=True)
    console.print("report: " + ", ".join(str(path) for path in whole.files), markup=False, soft_wrap=True)
    for line in faults(done):
        typer.echo(f"nnp: {line}", err=True)


#: Options of `nnp verify` that several machines do not take, and what to do instead.
ONE_MACHINE = {
    "--errors": "the bits are those of one machine, and so are the errors: leave out --machines, and verify the model",
    "--layers": "leave it out; `nnp compile MODEL --machines 2 --explain` prints the cycles of each layer",
    "--waves": "a waveform shows one machine: leave it out",
    "--keep-state": "`nnp run --keep-state` runs parts of a sequence on several machines: leave it out",
}


def _check_several(paths: list[Path], given: dict[str, object]):
    """Refuse what several machines do not take.

    Raises:
        ValueError: a sentence about the first file or option.
    """
    from concord.workflows.storage import FileKind, kind_of

    for path in paths:
        if kind_of(path) is FileKind.NETWORK:
            raise ValueError(f"{path}: --machines takes quantised models, and this is a network in float32: "
                             "quantise it first, by `nnp quantize`")
    for option in given:
        if given[option]:
            raise ValueError(f"{option} is for networks on one machine, and here are several: {ONE_MACHINE[option]}")
