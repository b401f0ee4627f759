"""`nnp verilog`: writes Verilog of the machine or of one unit, for an integrator."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

PRESET = "ulx3s"  #: The machine where nobody names one.


def verilog(
    preset: Annotated[str, typer.Option(
        "--preset", "--config", metavar="MACHINE", help="Name of a preset, or TOML file of a machine.")] = PRESET,
    unit: Annotated[str, typer.Option(
        "--unit", help="Name of the unit, which is that of its file in hw/; 'list' prints all names.")] = "nnp",
    output: Annotated[Path | None, typer.Option(
        "--out", "-o", help="Folder to write to; build/verilog/PRESET-UNIT if not given.")] = None,
    machines: Annotated[int, typer.Option(
        "--machines", help="Number of machines in a pipeline, each of which sends its results to the next one.")] = 1,
    cores: Annotated[int, typer.Option(
        "--cores", help="Number of machines under a command processor, which share one memory.",
        show_default="one machine without a command processor")] = 0,
    trainers: Annotated[int, typer.Option(
        "--trainers", help="Number of cores that train under the command processor, 0 to 8, ahead of those of "
                           "--cores.")] = 0,
    trainer: Annotated[str, typer.Option(
        "--trainer", metavar="SIZES", show_default="the sizes in docs/trainer.md",
        help="Sizes of such a core, as words=4096,exponents=32.")] = "",
):
    """Write Verilog, and the files that an integrator needs beside it.

    These are a page of ports, an instantiation template, a FuseSoC core and waivers for `verilator --lint-only`; for a
    machine its register map as a page, in SystemRDL, in IP-XACT and as a C header; for an accelerator SystemRDL and
    IP-XACT of all its windows, a C header of registers and commands, and a driver of lists of commands.
    """
    from concord.firmware.accelerator_session import accelerator_of
    from concord.handover.integration import MACHINES, verilog_files
    from concord.hw.accelerator.accelerator import Accelerator
    from concord.hw.cascade import Cascade
    from concord.hw.units import component, in_machines, in_trainers
    from concord.lib.extras import require
    from concord.lib.files import check_writable, write_all
    from concord.lib.progress import Steps
    from concord.spec.machine.machine_file import find_config, machine_name
    from concord.spec.trainer.config import trainer_of
    from rich.console import Console

    require("synthesis")
    if unit == "list":
        typer.echo("\n".join(sorted([*in_machines(), *in_trainers()])))
        return
    chosen, machine, sizes = find_config(preset), machine_name(preset), trainer_of(trainer)
    several, trains = machines > 1, unit in in_trainers()
    check_tops(unit, machines, {"cores": cores, "trainers": trainers})
    if trainer and not trainers and not trains:
        raise ValueError(f"--trainer {trainer}: these are sizes of cores of --trainers, or of one of their units: name "
                         "how many there are, or a unit of a core that trains")
    if (trainers and not cores or trains) and preset != PRESET:
        raise ValueError(f"--preset {preset}: there is no such machine beside cores that train: leave it out, or say "
                         "with --cores how many there are")
    accelerator = accelerator_of(chosen, cores, [sizes] * trainers) if cores or trainers else None
    unit = "cascade" if several else "accelerator" if accelerator else unit
    if cores or unit in MACHINES:
        chosen.require_hardware()
    parts = {f"trainers{trainers}": trainers, "trainer": trains, machine: cores or not (trainers or trains)}
    machine = "-".join(name for name, there in parts.items() if there)
    output = output or Path("build/verilog") / f"{machine}-{unit}"
    check_writable(output, folder=True)
    made = (Cascade([chosen] * machines) if several else Accelerator(accelerator) if accelerator
            else component(unit, chosen, sizes))
    with Steps(Console(stderr=True), 1).step("generate Verilog", f"{unit} of {machine}; a large machine takes minutes"):
        files = verilog_files(made, unit, machine, accelerator or (sizes if trains else chosen))
    write_all(output, files)
    typer.echo(f"{output}: {', '.join(files)}")


def check_tops(unit: str, machines: int, cores: Mapping[str, int]):
    """Refuse a unit, a pipeline and cores of an accelerator beside each other, or too many cores that train.

    Args:
        unit:     Name of the unit; "nnp" for the whole machine.
        machines: Number of machines of the pipeline.
        cores:    Number of cores by the option that names them.

    Raises:
        ValueError: they do not go together.
    """
    from concord.spec.accelerator.accelerator import MASKED

    if machines < 1 or machines > 1 and unit != "nnp":
        raise ValueError(f"--machines {machines}: there is one machine at least, and a unit stands in one: leave out "
                         "--machines or --unit")
    if not 0 <= cores["trainers"] <= MASKED:
        raise ValueError(f"--trainers {cores['trainers']}: an accelerator has 0 to {MASKED} cores that train")
    for name, count in cores.items():
        if count and (machines > 1 or unit != "nnp"):
            raise ValueError(f"--{name} {count}: an accelerator is a top of its own: leave out --machines or --unit")
