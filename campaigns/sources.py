"""What the source documents ask for beside a command that shows it: `nox -s sources` writes docs/sources.md.

Each item of `sources.toml` has commands that a user types, a sentence that says why there is none, or what it waits
for. Commands run in one folder, build/sources, whose files `makers.source_files` makes. The output of commands that
have succeeded is kept there, until their text changes, so that a session that was stopped goes on.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from concord.campaigns.makers import source_files
from concord.lib.processes import calls
from concord.nnp.lib.errors import sentences
from rich.console import Console

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OUT, PAGE = ROOT / "build/sources", ROOT / "docs/sources.md"
#: Variables under which a command prints the same text wherever it runs.
PLAIN = {"COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "1"}
HEAD = """# What the source documents ask for

Each item of the five source documents that networks, compiler, training and small units answer, with a command that
shows it and the lines of its output. `nox -s sources` runs the commands and writes this page. `NAME.onnx` and
`NAME.npz` are small trained networks and their data, which `campaigns/makers/source_files.py` makes in build/sources.
"""
LONGEST = 900  #: Seconds after which a command is stopped.


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceItem:
    """An item of the source documents.

    Attributes:
        number:    Number of the document and of the item in it, such as "3.7".
        paragraph: Where the document has it.
        asks:      What the document has.
        commands:  Commands that show it, in order.
        prints:    Pattern of the lines of their output that the page shows; each command must print one at least.
        answer:    Why there is no command, or what the reader has to know beside it.
        lacks:     What of it is not there; empty if nothing.
        waits:     What it waits for; empty if nothing.
    """

    number: str
    paragraph: str
    asks: str
    commands: tuple[str, ...] = ()
    prints: str = ""
    answer: str = ""
    lacks: str = ""
    waits: str = ""

    def __post_init__(self):
        if bool(self.commands) != bool(self.prints):
            raise ValueError(f"sources.toml, item {self.number}: commands and the pattern of what they print go "
                             "together")
        if not (self.commands or self.answer or self.lacks or self.waits):
            raise ValueError(f"sources.toml, item {self.number}: give commands, an answer, or what it lacks or waits "
                             "for")

    @property
    def state(self) -> str:
        """One word for the table."""
        if self.waits:
            return "waits"
        if self.lacks:
            return "in part" if self.commands else "missing"
        return "shown" if self.commands else "answered"


def documents() -> dict[str, str]:
    """Title of each document by the first part of its items' numbers."""
    return _table()["documents"]


def items() -> list[SourceItem]:
    """All items in the order of their numbers."""
    entries: list[dict[str, Any]] = [
        {**entry, "commands": tuple(entry.get("commands", ()))} for entry in _table()["item"]]
    return [SourceItem(**entry) for entry in entries]


def _table() -> dict:
    return tomllib.loads((HERE / "sources.toml").read_text())


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownCommand:
    """A command and what it printed.

    Attributes:
        command: The command.
        output:  The lines of its output, and of its errors.
        code:    Its exit code.
        seconds: How long it took.
    """

    command: str
    output: tuple[str, ...]
    code: int
    seconds: float


def ran(command: str) -> ShownCommand:
    """Run a command in the folder of the session, or take what it has printed before."""
    kept = OUT / f"{hashlib.sha256(command.encode()).hexdigest()[:16]}.json"
    if kept.exists():
        found = json.loads(kept.read_text())
        found["output"] = tuple(found["output"])
        return ShownCommand(**found)
    begin, path = time.monotonic(), f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    try:
        done = subprocess.run(command, shell=True, cwd=OUT, env={**os.environ, **PLAIN, "PATH": path}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LONGEST, check=False)
        text, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired:
        text, code = f"stopped after {LONGEST} seconds", 124
    shown = ShownCommand(command=command, output=tuple(line.rstrip() for line in text.splitlines()), code=code,
                         seconds=time.monotonic() - begin)
    if not code:
        kept.write_text(json.dumps({name: getattr(shown, name) for name in ShownCommand.__slots__}))
    return shown


def shown(item: SourceItem) -> list[ShownCommand]:
    """The commands of an item, each with the lines that the page shows; a command that fails ends them."""
    found = []
    for command in item.commands:
        result = ran(command)
        found.append(result)
        if result.code:
            break
    return found


def problems(item: SourceItem, results: list[ShownCommand]) -> Iterator[str]:
    """A sentence for each command that failed, and one if nothing of what they print is what the item wants."""
    for result in results:
        if result.code:
            last = next((line for line in reversed(result.output) if line), "nothing")
            yield f"{item.number}: `{result.command}` ended with exit code {result.code}: {last}"
    if item.commands and not any(_lines(item, result) for result in results):
        yield f"{item.number}: no line of the output matches {item.prints!r}"


def _lines(item: SourceItem, result: ShownCommand) -> list[str]:
    return [line for line in result.output if re.search(item.prints, line)]


def page(chosen: list[tuple[SourceItem, list[ShownCommand]]]) -> str:
    """The text of docs/sources.md."""
    parts = [HEAD]
    for document, rows in groupby(chosen, lambda row: row[0].number.partition(".")[0]):
        parts.append(f"\n## {documents()[document]}\n")
        for item, results in rows:
            parts.append(f"\n**{item.number}** {item.paragraph}: {item.asks}\n")
            if item.waits:
                parts.append(f"\nWaits for {item.waits}.\n")
            if item.answer:
                parts.append(f"\n{item.answer}\n")
            if item.lacks:
                parts.append(f"\nNot there: {item.lacks}\n")
            for result in results:
                parts.append("\n" + "".join(f"    {line}\n" for line in (f"$ {result.command}", *_lines(item, result))))
    return "".join(parts)


@sentences
def main(
    only: Annotated[str, typer.Option(help="Beginning of the numbers of the items that run, such as 3. or 3.7.")] = "",
    processes: Annotated[int, typer.Option("-n", help="Number of commands that run at the same time.")] = 2,
):
    """Run the commands of all items and write docs/sources.md; the exit code is 1 if one of them fails."""
    console = Console(soft_wrap=True)
    OUT.mkdir(parents=True, exist_ok=True)
    chosen = [item for item in items() if item.number.startswith(only)]
    if not chosen:
        raise ValueError(f"no item has a number that begins with {only!r}")
    source_files.write(OUT)
    results, wrong, begin = {}, [], time.monotonic()
    for (item,), found in calls(shown, [(item,) for item in chosen], processes):
        results[item.number] = found
        seconds = sum(result.seconds for result in found)
        console.print(f"{item.number:5} {item.state:8} {seconds:6.1f} s  {item.asks}", markup=False, highlight=False)
        for sentence in problems(item, found):
            wrong.append(sentence)
            console.print(f"      {sentence}", markup=False, highlight=False)
    counted = ", ".join(f"{count} {state}" for state, count in Counter(item.state for item in chosen).items())
    console.print(f"{len(chosen)} items: {counted}; {len(wrong)} failures; {time.monotonic() - begin:.0f} s")
    if not only and not wrong:
        PAGE.write_text(page([(item, results[item.number]) for item in chosen]))
        console.print(f"{PAGE.relative_to(ROOT)} is written")
    raise typer.Exit(bool(wrong))


if __name__ == "__main__":
    typer.run(main)
