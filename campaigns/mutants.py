"""Mutation of hardware: one line of a unit is broken, and the testbench of that unit must fail.

`nox -s mutants -- --unit queue` breaks the lines of one unit, each in a copy of the repository. `--scheduler` takes the
workers of a Dask cluster (docs/cluster.md), and `--results FILE` keeps results, from which the same command goes on.
"""

import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Annotated

import typer
from concord.campaigns.broken_lines import Mutant, mutants_of, tree
from concord.campaigns.results_file import recorded
from concord.nnp.lib.errors import sentences
from concord.nnp.lib.options import Scheduler
from concord.sim.units import TESTBENCHES
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table


def verdict(folder: Path, mutant: Mutant) -> tuple[str, str]:
    """Run the testbench of a mutant: "red" and the failed assertion, "GREEN" if it passes, "ERROR" if it cannot run."""
    tree(folder / "tree", mutant)
    words = [sys.executable, "-m", "pytest", "-q", *mutant.words]
    done = subprocess.run(words, cwd=folder / "tree", capture_output=True, text=True,
                          env=os.environ | {"CONCORD_BUILD": str(folder / "build"), "COLUMNS": "200",
                                            "COCOTB_MAX_FAILURES": "1"}, check=False)
    if done.returncode == 0:
        return "GREEN", ""
    found = assertion(done.stdout)
    return ("red", found[:100]) if found else ("ERROR", (done.stdout + done.stderr)[-1000:])


@cache
def _folder() -> tempfile.TemporaryDirectory:
    """The folder of this process, whose builds its mutants share."""
    return tempfile.TemporaryDirectory(prefix="mutants-")


def judged(unit: str, number: int) -> tuple[str, str]:
    """The verdict on a mutant of a unit, by its number."""
    return verdict(Path(_folder().name), mutants_of(TESTBENCHES[unit])[number])


def assertion(printed: str) -> str:
    """The assertion of a testbench that failed, from what pytest prints; empty if none failed.

    Tests but `test_unit` print it in a failure of their own: each line has an "E" in front, and the assertion follows
    "1 of 1 tests failed; see FOLDER". An assertion of the hardware ends the simulation, which cocotb calls SimFailure.
    """
    inside = re.sub(r"^E +", "", printed, flags=re.MULTILINE).rpartition(" tests failed; see ")[2]
    found = re.search(r"^(?:AssertionError|\S*Timeout|\S*SimFailure).*(?:\n *assert .*)?", inside, re.MULTILINE)
    return re.sub(r"\s+", " ", found[0].removeprefix("AssertionError: ")) if found else ""


@sentences
def main(
    names: Annotated[
        list[str] | None, typer.Option("--unit", help="Unit to break; all units if left out. May be repeated.")
    ] = None,
    processes: Annotated[int, typer.Option("-n", min=1, help="Number of mutants at a time.")] = 1,
    results: Annotated[Path | None, typer.Option(
        metavar="FILE", help="File of the results; an interrupted run goes on from it.", show_default=False)] = None,
    scheduler: Scheduler = "",
) -> None:
    """Break lines of hardware, one at a time, and list which testbenches notice."""
    console, noticed = Console(), 0
    table = Table("unit", "file", "line", "broken", "testbench", "assertion", title="Mutants")
    for name in names or ():
        if name not in TESTBENCHES:
            raise typer.BadParameter(f"there is no testbench of a unit {name!r}: choose one of "
                                     f"{', '.join(sorted(TESTBENCHES))}")
    jobs = [(name, number) for name in names or TESTBENCHES
            for number in range(len(mutants_of(TESTBENCHES[name])))]
    chosen = [mutants_of(TESTBENCHES[name])[number] for name, number in jobs]
    if not chosen:
        raise typer.BadParameter(f"no mutants of {', '.join(names or ())}: list some in MUTANTS of the testbench")
    calls = recorded(judged, jobs, results, {"campaign": "mutants", "mutants": jobs}, processes=processes,
                     scheduler=scheduler, extra="sim")
    found = dict(track(calls, total=len(jobs), console=console, transient=True))
    for number, mutant in enumerate(chosen):
        colour, assertion = found[number]
        noticed += colour == "red"
        table.add_row(*map(escape, (mutant.unit, mutant.file, mutant.old, mutant.new, colour, assertion)))
    console.print(table)
    console.print(f"{len(chosen)} lines broken, {noticed} noticed")
    raise typer.Exit(noticed < len(chosen))


if __name__ == "__main__":
    typer.run(main)
