"""`nnp verilog`: writes Verilog of the machine or of one unit, for an integrator."""

from pathlib import Path
from typing import Annotated

import typer


def verilog(
    preset: Annotated[str, typer.Option(
        "--preset", "--config", metavar="MACHINE", help="Name of a preset, or TOML file of a machine.")] = "ulx3s",
    unit: Annotated[str, typer.Option(
        "--unit", help="Name of the unit, which is that of its file in hw/; 'list' prints all names.")] = "nnp",
    output: Annotated[Path | None, typer.Option(
        "--out", "-o", help="Folder to write to; build/verilog/PRESET-UNIT if not given.")] = None,
    machines: Annotated[int, typer.Option(
        "--machines", help="Number of machines in a pipeline, each of which sends its results to the next one.")] = 1,
    cores: Annotated[int, typer.Option(
        "--cores", help="Number of machines under a command processor, which share one memory.",
        show_default="one machine without a command processor")] = 0,
):
    """Write Verilog, and the files that an integrator needs beside it.

    These are a page of ports, an instantiation template, a FuseSoC core, waivers for `verilator --lint-only`, and the
    machine's register map as a page, in SystemRDL, in IP-XACT and as a C header.
    """
    from concord.firmware.accelerator_session import accelerator_of
    from concord.handover.integration import MACHINES, verilog_files
    from concord.hw.accelerator.accelerator import Accelerator
    from concord.hw.cascade import Cascade
    from concord.hw.units import component, in_machines
    from concord.lib.extras import require
    from concord.lib.files import check_writable, write_all
    from concord.lib.progress import Steps
    from concord.spec.machine.machine_file import find_config, machine_name
    from rich.console import Console

    require("synthesis")
    chosen, machine = find_config(preset), machine_name(preset)
    if unit == "list":
        typer.echo("\n".join(in_machines()))
        return
    several = machines > 1
    if machines < 1 or several and unit != "nnp":
        raise ValueError(f"--machines {machines}: there is one machine at least, and a unit stands in one: leave out "
                         "--machines or --unit")
    if cores and (several or unit != "nnp"):
        raise ValueError(f"--cores {cores}: an accelerator is a top of its own: leave out --machines or --unit")
    unit = "cascade" if several else "accelerator" if cores else unit
    if unit in MACHINES or cores:
        chosen.require_hardware()
    output = output or Path("build/verilog") / f"{machine}-{unit}"
    check_writable(output, folder=True)
    made = (Cascade([chosen] * machines) if several else Accelerator(accelerator_of(chosen, cores)) if cores
            else component(unit, chosen))
    with Steps(Console(stderr=True), 1).step("generate Verilog", f"{unit} of {machine}; a large machine takes minutes"):
        files = verilog_files(made, unit, machine, chosen)
    write_all(output, files)
    typer.echo(f"{output}: {', '.join(files)}")
