"""`nnp handover`: writes what an engineer needs to put firmware on a board."""

from pathlib import Path
from typing import Annotated

import typer
from concord.nnp.lib.options import AxesOrder, Cores, First, Inputs, TestData

DEFAULT = 3  #: Number of examples if `--samples` is not given.


def handover(
    firmware: Annotated[
        Path, typer.Argument(metavar="FIRMWARE", help="Firmware file from `nnp compile` or `nnp asm`.",
                             show_default=False)],
    output: Annotated[Path | None, typer.Option(
        "--out", "-o", help="Folder to write to; build/handover/FIRMWARE if not given.")] = None,
    samples: Annotated[str | None, typer.Option(
        "--samples", help="Number of examples, or 'all'.", show_default="3, or as many as there are")] = None,
    first: First = 0,
    inputs: Inputs = None,
    data: TestData = None,
    order: AxesOrder = None,
    cores: Cores = 1,
    simulation: Annotated[bool, typer.Option(
        "--simulation", help="Build the Verilated machine, too, and add it as nnp.so, on which the C program runs."
    )] = False,
):
    """Write firmware as byte stream and hex, examples with golden answers, a testbench, a C driver and registers."""
    from concord.firmware.accelerator_session import accelerator_of, check_cores
    from concord.firmware.firmware_file import load_firmware
    from concord.handover.package import handover as files_of
    from concord.lib.files import check_writable, write_all
    from concord.lib.progress import Steps
    from concord.sim.machines import accelerator_library, host
    from concord.verification.inputs import InputSource, read
    from rich.console import Console

    source = InputSource(inputs=inputs, data=data, samples=samples, first=first, order=order, default=DEFAULT)
    loaded = load_firmware(firmware)
    output = output or Path("build/handover") / firmware.stem
    check_writable(output, folder=True)
    loaded.config.require_hardware()
    check_cores(firmware, [loaded.config], "library", cores, {})
    given = read(loaded, source)
    for words in given.remarks:
        typer.echo(f"nnp: {words}", err=True)
    steps = Steps(Console(stderr=True), 1 + simulation)
    machine = None
    if simulation:
        with steps.step("build the machine", announce="minutes, where none has been built before"):
            built = (host.build("library", loaded.config) if cores == 1
                     else accelerator_library.library(accelerator_of(loaded.config, cores)))
            assert built is not None  # only golden and boards are not built
            machine = built.read_bytes()
    with steps.step("run golden", announce=f"{len(given.samples)} examples"):
        files = files_of(loaded, [sample for _, sample in given], machine, cores)
    write_all(output, files)
    typer.echo(f"{output}: {', '.join(files)}")
