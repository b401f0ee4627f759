"""`nnp doctor`: checks that everything is installed that the commands need, or that a machine works."""

from typing import Annotated

import typer
from concord.nnp.lib.options import MACHINES, machine_kind
from concord.sim.machines.kinds import MachineKind


def doctor(
    clear_cache: Annotated[
        bool, typer.Option("--clear-cache", help="Remove all cached builds, except those that a process is using.")
    ] = False,
    machine: Annotated[MachineKind | None, typer.Option(
        "--machine", metavar=MACHINES, parser=machine_kind, show_default=False,
        help="Test this machine instead: registers, a memory and a program.")] = None,
    preset: Annotated[str, typer.Option(
        "--preset", "--config", metavar="MACHINE", help="With --machine: what it is.")] = "ulx3s",
):
    """Check Python, packages, the simulator, the C++ tools and the cache of builds; or test a machine.

    The exit code is 1 if something is missing, or if the machine is wrong.
    """
    if machine is not None:
        _test(machine, preset)
        return
    if clear_cache:
        _clear()
        return
    from concord.nnp.lib.environment import findings
    from rich.console import Console
    from rich.table import Table

    table = Table("what", "found", "needed for", box=None)
    found = findings()
    for finding in found:
        mark = "[green]ok[/]" if finding.good else "[red]missing[/]" if finding.needed else "[yellow]absent[/]"
        table.add_row(finding.what, f"{mark} {finding.found}", finding.purpose)
    Console().print(table)
    missing = [finding for finding in found if finding.needed and not finding.good]
    for finding in missing:
        typer.echo(f"nnp: {finding.what}: {finding.advice}", err=True)
    raise typer.Exit(1 if missing else 0)


def _test(machine: MachineKind, preset: str):
    """Test a machine, and say what was found."""
    from concord.sim.machines.host import machine as made
    from concord.sim.machines.self_test import self_test
    from concord.spec.machine.machine_file import find_config, machine_name

    with made(machine, find_config(preset)) as one:
        found = self_test(one)
    typer.echo(f"{machine_name(preset)} at {machine}: {found.bits} differing bits in {found.carried:,} bytes of "
               f"messages and one program, {found.carried / found.seconds:,.0f} bytes a second")
    raise typer.Exit(1 if found.bits else 0)


def _clear():
    from concord.sim.machines import cache

    removed = cache.trim(0)
    used = len(cache.builds())
    typer.echo(f"{cache.BUILDS}: {len(removed)} builds removed" + (f"; {used} in use" if used else ""))
