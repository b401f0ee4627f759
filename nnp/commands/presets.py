"""`nnp presets`: lists machines, compares them, prints one as TOML, and fits one to a model."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def presets(
    machines: Annotated[list[str] | None, typer.Argument(
        metavar="[MACHINE]...", help="Presets or TOML files; several are compared.",
        show_default="all presets")] = None,
    toml: Annotated[bool, typer.Option(
        "--toml", help="Print the machine as the text of a TOML file, to start from.")] = False,
    fit: Annotated[str | None, typer.Option(
        "--fit", metavar="MODEL", show_default=False,
        help="Fit the machine of --preset to this model, and write a TOML file: memories that are too small grow, idle "
             "ones shrink, formats become those of the model. Or an ONNX file that is quantised already.")] = None,
    preset: Annotated[str, typer.Option(
        "--preset", "--config", metavar="MACHINE", help="Machine from which --fit begins.",
        show_default="vision, or the narrowest that is as wide as a quantised ONNX file")] = "",
    output: Annotated[Path | None, typer.Option(
        "--out", "-o", help="TOML file that --fit writes.", show_default="MODEL.toml in this folder")] = None,
    errors: Annotated[bool, typer.Option(
        "--errors", help="Print estimates beside measurements of everything that was synthesised.")] = False,
):
    """List all presets; print one machine; compare several; print one as TOML; fit one to a model.

    LUT4, multipliers (DSP) and block RAM are estimates for an ECP5, before any synthesis.
    """
    if fit is not None:
        if machines or toml or errors:
            raise ValueError("--fit begins from the machine of --preset: leave out other machines, --toml and --errors")
        _fit(fit, preset, output)
        return
    if output is not None:
        raise ValueError("-o is for --fit; `nnp presets MACHINE --toml > my.toml` keeps what --toml prints")
    if toml:
        _print_toml(machines or [])
    else:
        _print_tables(machines or [], errors)


def _print_toml(machines: list[str]):
    """Print the text of a TOML file."""
    from concord.machines.machine_text import full_text
    from concord.spec.machine.machine_file import find_config, machine_name

    if len(machines) != 1:
        raise ValueError("--toml prints one machine: name it, as in `nnp presets vision --toml`")
    typer.echo(full_text(find_config(machines[0]), machine_name(machines[0])), nl=False)


def _print_tables(machines: list[str], errors: bool):
    """Print the table of errors, of all presets, or of these machines."""
    from concord.machines import tables
    from concord.spec.machine.config import PRESETS
    from concord.spec.machine.machine_file import find_config, machine_name

    named: dict[str, str] = {}
    for machine in machines:  # two files of one name go by their paths
        named[machine_name(machine) if machine_name(machine) not in named else machine] = machine
    found = {name: find_config(machine) for name, machine in named.items()}
    if errors:
        if machines:
            raise ValueError("--errors prints all that was measured: leave out the machines")
        _print(tables.errors_table())
    else:
        _print(tables.comparison_table(found) if found else tables.machines_table(PRESETS))


def _fit(location: str, preset: str, output: Path | None):
    """Fit the machine `preset` to the model at `location`, and write it."""
    from concord.lib.files import check_writable, write
    from concord.lib.progress import Steps
    from concord.machines import tables
    from concord.machines.fit import fit
    from concord.machines.machine_text import changes_text
    from concord.spec.machine.machine_file import ENDING, find_config, machine_name
    from concord.workflows.own_machine import base_for, model_to_fit
    from concord.workflows.storage import file_name
    from rich.console import Console

    output = output or Path(f"{Path(file_name(location)).stem}{ENDING}")
    if output.suffix != ENDING:
        raise ValueError(f"{output}: the name of a machine's file ends with {ENDING}")
    check_writable(output)
    model, of_file = model_to_fit(location)
    preset = preset or (base_for(*of_file) if of_file else "vision")
    base, name = find_config(preset), machine_name(preset)
    steps = Steps(Console(stderr=True), 1)
    with steps.step("fit", announce=f"{model.name} is compiled for machines from {name} on until one holds it"):
        fitted = fit(model, base)
    title = f"A machine that holds {fitted.compiled.firmware.name}, fitted from {name}."
    write(output, changes_text(fitted.config, title))
    _print(tables.fit_table(fitted, name, machine_name(str(output))))
    for bound in (bound for bound in fitted.compiled.bounds if not bound.proven):
        typer.echo(bound)
    typer.echo(f"{output}: the model compiles for this machine; `nnp verify {location} --preset {output}` runs it")


def _print(table):
    """Print a table; one that goes to a file or a pipe is as wide as its text."""
    from rich.console import Console

    console = Console()
    if not sys.stdout.isatty():
        console = Console(width=max(console.width, Console(width=1000).measure(table).maximum))
    console.print(table)
