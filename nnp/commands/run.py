"""`nnp run`: runs firmware on a machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from concord.nnp.lib.options import (
    OUTPUTS,
    AxesOrder,
    Cores,
    First,
    Inputs,
    KeepState,
    Machine,
    Quiet,
    Samples,
    TestData,
)
from concord.sim.machines.kinds import MachineKind

if TYPE_CHECKING:
    from concord.firmware.cascade import Cascade

STEPS = 2


def run(
    firmware: Annotated[
        Path, typer.Argument(
            metavar="FIRMWARE", help="Firmware file from `nnp compile` or `nnp asm`.", show_default=False)],
    samples: Samples = None,
    first: First = 0,
    machine: Machine = MachineKind.GOLDEN,
    inputs: Inputs = None,
    data: TestData = None,
    order: AxesOrder = None,
    output: Annotated[Path | None, typer.Option(
        "--out", "-o", help=OUTPUTS)] = None,
    waves: Annotated[Path | None, typer.Option("--waves", help="File to write a waveform to (VCD).")] = None,
    keep_state: KeepState = False,
    cores: Cores = 1,
    unquantized: Annotated[
        bool, typer.Option(
            "--unquantized", "--unquantised",
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
    from concord.firmware.accelerator_session import check_cores
    from concord.firmware.cascade_session import session_of
    from concord.firmware.firmware_file import load_cascade
    from concord.firmware.unquantized import UnquantizedMachine
    from concord.lib.files import check_writable
    from concord.lib.progress import Steps
    from concord.lib.several import apart
    from concord.spec.machine.machine_file import find_config
    from concord.verification.inputs import InputSource, read
    from concord.verification.twins import TwinCheck
    from concord.workflows.results import lines, summary, values, write_outputs
    from rich.console import Console

    source = InputSource(inputs=inputs, data=data, samples=samples, first=first, order=order, default=10)
    for path in output, waves:
        if path:
            check_writable(path)
    loaded = load_cascade(firmware, find_config(preset) if preset else None)
    _check(loaded, firmware, machine, keep_state=keep_state, waves=waves, twin=twin, unquantized=unquantized)
    check_cores(firmware, [part.config for part in loaded.parts], machine, cores, {
        "--keep-state": keep_state, "--waves": waves, "--twin": twin, "--unquantised": unquantized})
    check = TwinCheck(loaded, load_cascade(twin)) if twin else None
    real = UnquantizedMachine(loaded.first) if unquantized else None
    given = read(loaded, source)
    for words in given.remarks:
        typer.echo(f"nnp: {words}", err=True)
    # Only results go to stdout; golden starts at once, so that no steps are printed for it.
    steps = Steps(Console(stderr=True, quiet=machine == MachineKind.GOLDEN), STEPS)
    results, parts = [], []
    announced = "; ".join(filter(None, (machine, machine.building)))
    with steps.step("open the machine" if machine.port else "build the machine", announce=announced):
        session = session_of(loaded, machine, cores, **({"trace": waves} if waves else {}))
    with session, steps.step("run", announce=f"{len(given.samples)} samples"):
        together = session.infer_all([sample for _, sample in given]) if loaded.first.batch * cores > 1 else None
        for row, (index, sample) in enumerate(given):
            results.append(
                real.infer(sample) if real else together[row] if together is not None else
                session.infer(sample, keep_state=keep_state and bool(results)))
            if check:
                parts = [*parts, sample] if keep_state else [sample]
                check.add(index, np.concatenate(parts), results[-1])
            if not quiet:
                said = lines(index, results[-1], loaded.classes, given.samples, row, given.task,
                             loaded.results)
                for words, part in zip(said, apart(results[-1], loaded.results).values() or [results[-1]], strict=True):
                    typer.echo(f"{words}: {values(part)}")
        invalid = session.invalid
        fault = check.locate(machine) if check else None
    typer.echo(summary(np.stack(results), given.samples, given.task))
    if invalid:
        typer.echo(f"nnp: {' and '.join(invalid)}: a quantiser met a NaN, which counts as 0, or an infinity, which "
                   "counts as the largest number; results of such samples mean nothing", err=True)
    if output:
        write_outputs(output, np.stack(results), loaded.classes, given.samples, given.chosen.start, loaded.results)
    if check:
        typer.echo(f"{check.differing} of {len(results)} samples differ from the twin of {twin}")
    if check and check.differing:
        from concord.verification.twins import KEPT

        typer.echo(f"nnp: {fault or KEPT}", err=True)
        raise typer.Exit(1)


def _check(
    loaded: "Cascade", path: Path, machine: MachineKind, *, keep_state: bool, waves: Path | None,
    twin: Path | None, unquantized: bool,
):
    """Refuse options that exclude each other, and machines that cannot be built, before anything runs.

    Raises:
        ValueError: a sentence that names both, or what the machine has.
    """
    several = len(loaded.parts) > 1
    for part in loaded.parts if machine != MachineKind.GOLDEN else ():
        part.config.require_hardware()
    if unquantized and (machine != MachineKind.GOLDEN or keep_state):
        raise ValueError("--unquantised runs on the numpy model and takes whole sequences: leave out --machine and "
                         "--keep-state")
    if waves and machine not in (MachineKind.LIBRARY, MachineKind.COCOTB):
        raise ValueError("--waves needs a simulated machine with named signals: --machine library or cocotb")
    if twin and unquantized:
        raise ValueError("--twin compares outputs that are quantised: leave out --unquantised")
    if waves and several:
        raise ValueError("a waveform shows one machine: leave out --waves, or compile for one machine")
    if several and unquantized:
        raise ValueError(f"{path} is firmware of several machines: --unquantised takes that of one")
    loaded.program(keep_state=keep_state)
