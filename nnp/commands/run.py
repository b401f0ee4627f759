"""`nnp run`: runs firmware on a machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from concord.nnp.lib.options import First, Inputs, Machine, MachineKind, Quiet, Samples, TestData

if TYPE_CHECKING:
    from concord.golden.host.cascade import Cascade
    from concord.golden.host.firmware import Firmware
    from concord.nnp.verify.twin_check import CascadeCheck, TwinCheck

STEPS = 2
#: What is said where a sample differs from the twin only behind other samples.
KEPT = ("the first of them, run alone on memories in their initial state, does not differ: the program reads what "
        "earlier samples have left")


def run(
    firmware: Annotated[
        Path, typer.Argument(
            metavar="FIRMWARE", help="Firmware file from `nnp compile` or `nnp asm`.", show_default=False)],
    samples: Samples = None,
    first: First = 0,
    machine: Machine = MachineKind.GOLDEN,
    inputs: Inputs = None,
    data: TestData = None,
    output: Annotated[Path | None, typer.Option(
        "-o", help="File to write the outputs to, a .npy array of binary16.")] = None,
    waves: Annotated[Path | None, typer.Option("--waves", help="File to write a waveform to (VCD).")] = None,
    keep_state: Annotated[
        bool, typer.Option(
            "--keep-state",
            help="Samples are parts of one sequence: each starts from the state that the last one left.")
    ] = False,
    unquantised: Annotated[
        bool, typer.Option(
            "--unquantised",
            help="Run the same chains in float64 with all quantisers off. The firmware must be compiled with "
                 "--full-precision; -o writes float64.")
    ] = False,
    preset: Annotated[str, typer.Option(
        "--preset", "--config", metavar="MACHINE", show_default=False,
        help="Name of a preset, or TOML file of a machine; that of the firmware if not given.")] = "",
    twin: Annotated[Path | None, typer.Option(
        "--twin", metavar="FIRMWARE", show_default=False,
        help="Firmware that is known to be right: every output is compared with that of its software twin, and the "
             "first instruction and element that differ are named.")] = None,
    quiet: Quiet = False,
):
    """Run firmware on inputs and print its outputs."""
    import numpy as np
    from concord.golden.unquantised import UnquantisedMachine
    from concord.nnp.lib.files import check_writable
    from concord.nnp.lib.results import line, summary, values, write_outputs
    from concord.nnp.lib.steps import Steps
    from concord.nnp.verify.cascade_session import opened, session_of
    from concord.nnp.verify.inputs import Source, read
    from concord.spec.machine_file import find_config
    from rich.console import Console

    source = Source(inputs=inputs, data=data, samples=samples, first=first, default=10)
    for path in output, waves:
        if path:
            check_writable(path)
    loaded = opened(firmware, find_config(preset) if preset else None)
    _check(loaded, firmware, machine, keep_state=keep_state, waves=waves, twin=twin, unquantised=unquantised)
    check = _twin_check(loaded, twin) if twin else None
    real = UnquantisedMachine(loaded) if unquantised else None
    given = read(loaded, source)
    for words in given.remarks:
        typer.echo(f"nnp: {words}", err=True)
    # Only results go to stdout; golden starts at once, so that no steps are printed for it.
    steps = Steps(Console(stderr=True, quiet=machine == MachineKind.GOLDEN), STEPS)
    results = []
    with steps.step("build the machine", announce=f"{machine}; minutes, where none has been built before"):
        session = session_of(loaded, machine, **({"trace": waves} if waves else {}))
    with session, steps.step("run", announce=f"{len(given.samples)} samples"):
        for place, (index, sample) in enumerate(given):
            results.append(real.infer(sample) if real else session.infer(
                sample, keep_state=keep_state and bool(results)))
            if check:
                check.add(index, sample, results[-1])
            if not quiet:
                said = line(index, results[-1], loaded.classes, given.samples, place, given.task)
                typer.echo(f"{said}: {values(results[-1])}")
        invalid = session.invalid
        fault = check.locate(machine, session) if check else None
    typer.echo(summary(np.stack(results), given.samples, given.task))
    if invalid:
        typer.echo(f"nnp: {' and '.join(invalid)}: a quantiser met a NaN, which counts as 0, or an infinity, which "
                   "counts as the largest number; results of such samples mean nothing", err=True)
    if output:
        write_outputs(output, np.stack(results))
    if check:
        typer.echo(f"{check.differing} of {len(results)} samples differ from the twin of {twin}")
    if check and check.differing:
        typer.echo(f"nnp: {fault or KEPT}", err=True)
        raise typer.Exit(1)


def _twin_check(loaded: "Firmware | Cascade", twin: Path) -> "TwinCheck | CascadeCheck":
    """What compares firmware with the twin of other firmware, for as many machines."""
    from concord.golden.host.cascade import Cascade
    from concord.golden.host.cascade_file import load_cascade
    from concord.golden.host.firmware_file import load_firmware
    from concord.nnp.verify.twin_check import CascadeCheck, TwinCheck

    if isinstance(loaded, Cascade):
        return CascadeCheck(loaded, load_cascade(twin))
    return TwinCheck(loaded, load_firmware(twin, loaded.config))


def _check(
    loaded: "Firmware | Cascade", place: Path, machine: MachineKind, *, keep_state: bool, waves: Path | None,
    twin: Path | None, unquantised: bool,
):
    """Refuse options that exclude each other, before anything runs.

    Raises:
        ValueError: a sentence that names both.
    """
    from concord.golden.host.cascade import Cascade

    several = isinstance(loaded, Cascade)
    if unquantised and (machine != MachineKind.GOLDEN or keep_state):
        raise ValueError("--unquantised runs on the numpy model and takes whole sequences: leave out --machine and "
                         "--keep-state")
    if waves and machine == MachineKind.GOLDEN:
        raise ValueError("--waves needs a simulated machine: --machine library or cocotb")
    if twin and (keep_state or unquantised):
        raise ValueError("--twin computes each sample from the initial state, quantised: leave out --keep-state and "
                         "--unquantised")
    if waves and several:
        raise ValueError("a waveform shows one machine: leave out --waves, or compile for one machine")
    if several and unquantised:
        raise ValueError(f"{place} is firmware of several machines: --unquantised takes that of one")
    loaded.program(keep_state=keep_state)
