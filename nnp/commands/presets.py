"""`nnp presets`: lists machines, compares them, prints one as TOML, and fits one to a model."""

from pathlib import Path
from typing import Annotated

import typer


def presets(
    machines: Annotated[list[str] | None, typer.Argument(
        metavar="[MACHINE]...", help="Presets or TOML files: several are compared.", show_default="all presets")] = None,
    toml: Annotated[bool, typer.Option(
        "--toml", help="Print the machine as TOML, to start from, instead of a table.")] = False,
    fit: Annotated[str | None, typer.Option(
        "--fit", metavar="MODEL", help="Fit the machine of --preset to this model: memories that are too small grow, "
                                       "idle ones shrink, formats become those of the model. Writes a TOML file.",
        show_default=False)] = None,
    preset: Annotated[str, typer.Option(
        "--preset", "--config", metavar="MACHINE", help="Machine from which --fit begins.")] = "vision",
    output: Annotated[Path | None, typer.Option(
        "-o", help="TOML file that --fit writes.", show_default="MODEL.toml in this folder")] = None,
    errors: Annotated[bool, typer.Option(
        "--errors", help="Print estimated beside measured cells of what the estimate was fitted to.")] = False,
):
    """List all presets; compare machines; print one as TOML; fit one to a model.

    LUT4, multipliers and block RAM are estimates for an ECP5, before any synthesis.
    """
    from concord.nnp.machines import tables
    from concord.nnp.machines.machine_text import full_text
    from concord.spec.config import PRESETS
    from concord.spec.machine_file import find_config, machine_name
    from rich.console import Console

    places = machines or list(PRESETS)
    if fit is not None:
        if machines or toml or errors:
            raise ValueError("--fit begins from the machine of --preset: leave out other machines, --toml and --errors")
        _fit(fit, preset, output)
        return
    if output is not None:
        raise ValueError("-o is for --fit; `nnp presets MACHINE --toml > my.toml` writes what --toml prints")
    if errors:
        _print(tables.errors_table())
        return
    found = {machine_name(place): find_config(place) for place in places}
    if toml:
        if len(places) != 1 or not machines:
            raise ValueError("--toml prints one machine: name it, as in `nnp presets vision --toml`")
        typer.echo(full_text(*reversed(found.popitem())), nl=False)
    else:
        _print(tables.machines_table(found) if len(found) != 2 else tables.comparison_table(found))
    del Console


def _print(table):
    """Print a table as wide as it is, if the output is no terminal."""
    import sys

    from rich.console import Console

    console = Console()
    if not sys.stdout.isatty():
        console = Console(width=max(console.width, Console(width=400).measure(table).maximum))
    console.print(table)


def _fit(place: str, preset: str, output: Path | None):
    """Fit the machine `preset` to the model at `place`, and write it."""
    from concord.golden.lib.atomic_files import write_all
    from concord.nnp.lib.files import check_writable
    from concord.nnp.lib.storage import file_name, read_model
    from concord.nnp.machines import tables
    from concord.nnp.machines.fit import fit
    from concord.nnp.machines.machine_text import changes_text
    from concord.spec.machine_file import find_config, machine_name

    output = output or Path(f"{Path(file_name(place)).stem}.toml")
    if output.suffix != ".toml":
        raise ValueError(f"{output}: the name of a machine's file ends with .toml")
    base, name = find_config(preset), machine_name(preset)
    check_writable(output)
    fitted = fit(read_model(place), base)
    title = f"A machine that holds {fitted.compiled.firmware.name}, fitted from {name}."
    write_all(output.parent, {output.name: changes_text(fitted.config, title).encode()})
    _print(tables.fit_table(fitted, name, output.stem))
    typer.echo(f"{output}: the model compiles for it; nnp verify {place} --preset {output}")
