"""`nnp doctor`: is everything here that the commands need?"""

import typer


def doctor():
    """Check Python, packages, the simulator and the C++ tools; exit code 1 where something is missing."""
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
