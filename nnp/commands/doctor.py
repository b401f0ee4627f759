"""`nnp doctor`: checks that everything is installed that the commands need."""

from typing import Annotated

import typer


def doctor(
    clear_cache: Annotated[
        bool, typer.Option("--clear-cache", help="Remove all cached builds, except those that a process is using.")
    ] = False,
):
    """Check Python, packages, the simulator, the C++ tools and the cache of builds.

    The exit code is 1 if something is missing.
    """
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


def _clear():
    from concord.sim.machines import cache

    removed = cache.trim(0)
    used = len(cache.builds())
    typer.echo(f"{cache.BUILDS}: {len(removed)} builds removed" + (f"; {used} in use" if used else ""))
