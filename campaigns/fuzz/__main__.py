"""Damages files of every kind that users bring, and requires that loaders refuse them in sentences that name the file.

`nox -s fuzz -- --minutes 10` damages all kinds; `--kind npz --seed 17 --count 1` repeats one file. A file that makes a
loader fail in another way is kept in a folder, with the error and the line that repeats it.
"""

import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from concord.campaigns.fuzz.attempts import ACCEPTED, REFUSED, Attempt, Attempts
from concord.campaigns.fuzz.kinds import KINDS
from rich.console import Console
from rich.markup import escape
from rich.table import Table

KEPT = 20  #: Most failures of a kind that are kept; the others are counted.
console = Console()


def main(
    minutes: Annotated[float, typer.Option(help="Minutes in all, shared by the kinds.")] = 10,
    kind: Annotated[list[str] | None, typer.Option(help=f"Kind of file: {', '.join(KINDS)}. All by default.")] = None,
    seed: Annotated[int, typer.Option(help="Number of the first file of each kind.")] = 0,
    count: Annotated[int, typer.Option(help="Most files of each kind; 0 for as many as the time allows.")] = 0,
    seconds: Annotated[float, typer.Option(help="Seconds of CPU time that a loader may take for a file.")] = 10,
    memory: Annotated[int, typer.Option(help="MiB that a loader may take for a file.")] = 2048,
    out: Annotated[Path, typer.Option(help="Folder for files that make a loader fail.")] = Path("build/fuzz"),
):
    """Damage files and load them."""
    chosen = kind or list(KINDS)
    if unknown := [name for name in chosen if name not in KINDS]:
        console.print(f"there is no kind {unknown[0]}; there are {', '.join(KINDS)}")
        sys.exit(2)
    table = Table("kind", "files", "refused", "accepted", "failures")
    failures = 0
    for number, name in enumerate(chosen):
        if number == 0:
            end = time.monotonic()
        end += 60 * minutes / len(chosen)
        with TemporaryDirectory() as folder:
            attempts = Attempts(name, Path(folder), seconds, memory)
            found = _campaign(attempts, seed, count or sys.maxsize, end, out)
        failed = sum(found.values()) - found[REFUSED] - found[ACCEPTED]
        table.add_row(name, *(f"{n:,}" for n in (sum(found.values()), found[REFUSED], found[ACCEPTED], failed)))
        failures += failed
    console.print(table)
    sys.exit(failures > 0)


def _campaign(attempts: Attempts, seed: int, count: int, end: float, out: Path) -> dict[str, int]:
    """Load files until the time ends, and count outcomes by their verdict."""
    found: dict[str, int] = {REFUSED: 0, ACCEPTED: 0}
    failed = 0
    for outcome in attempts.run(seed, count, end):
        found[outcome.verdict] = found.get(outcome.verdict, 0) + 1
        if outcome.verdict not in (REFUSED, ACCEPTED):
            failed += 1
            if failed <= KEPT:
                _keep(attempts, outcome, out)
    return found


def _keep(attempts: Attempts, outcome: Attempt, out: Path):
    """Keep the file of a failure, its error, and the line that repeats it."""
    line = f"nox -s fuzz -- --kind {attempts.name} --seed {outcome.seed} --count 1"
    folder = out / f"{attempts.name}-{outcome.seed}"
    shutil.rmtree(folder, ignore_errors=True)
    attempts.write(outcome.seed, "kept")
    shutil.copytree(attempts.folder / "kept", folder / "files")
    (folder / "error.txt").write_text(f"{line}\n\n{outcome.verdict}\n{outcome.text}\n", errors="backslashreplace")
    console.print(escape(f"{attempts.name}, {outcome.seed}: {outcome.verdict}\n    {line}\n    {folder}"),
                  soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
