"""The folder of a run: what was asked for, what its worker says, and the commands that the worker takes.

Only the worker writes `state.json`, `live.db`, `steering.json` and the model; only the server the rest.
"""

import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from concord.dashboard.execution import alive
from concord.dashboard.work_queue import WorkQueue
from concord.lib.files import write
from concord.lib.names import cleaned
from concord.train.live.changes import STATE

#: Job that trains.
TRAIN = "train"
#: Options by which a command that trains writes the folder in which it runs.
WATCHED = ("--run", ".")
#: Files of which each run has one at least.
KEPT = ("run.json", "import.json", STATE)
#: Last bytes of a job's output that are shown.
SHOWN = 6000


class Condition(StrEnum):
    """What a run is doing."""

    BROUGHT = "brought"  #: a network is there, and no run was started
    QUEUED = "queued"
    STARTING = "starting"  #: its process begins
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"  #: ended early, as the user asked, with a model
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"  #: its process is gone; it can go on

    @property
    def live(self) -> bool:
        """Whether a process works on the run, or will."""
        return self in (Condition.QUEUED, Condition.STARTING, Condition.RUNNING, Condition.PAUSED)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @classmethod
    def made(cls, runs: Path) -> "RunFolder":
        """A new folder, whose name is the time and six random digits."""
        path = runs / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        (path / "inputs").mkdir(parents=True)
        return cls(path)

    @classmethod
    def named(cls, runs: Path, name: str) -> "RunFolder":
        """The folder of a run by its name.

        Raises:
            KeyError: there is none.
        """
        path = runs / name
        if not re.fullmatch(r"\w[\w.-]{0,254}", name, re.ASCII) or not path.is_dir():
            raise KeyError(name)
        return cls(path)

    @property
    def name(self) -> str:
        """Name of the folder, by which URLs name the run."""
        return self.path.name

    @property
    def request(self) -> dict[str, Any]:
        """What was asked for; of a run that a user started by hand, nothing but a name."""
        return {"name": self.name, "command": [], "options": []} | self.read("run.json")

    @property
    def title(self) -> str:
        """Name of the run, as the user gave it."""
        return cleaned(str(self.request["name"] or self.name))

    @property
    def created(self) -> float:
        """When it was started, or when its folder was made."""
        return self.request.get("created") or self.path.stat().st_mtime

    @property
    def imported(self) -> dict[str, Any]:
        """What the inspection found in the network and the data."""
        return self.read("import.json")

    def read(self, name: str) -> dict[str, Any]:
        """The object of a JSON file; empty if there is none, or it cannot be read."""
        try:
            found = json.loads((self.path / name).read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, name: str, content: Mapping[str, Any]):
        """Write an object as a JSON file, which appears whole."""
        write(self.path / name, json.dumps(content, indent=1))

    def start(self, queue: WorkQueue, request: Mapping[str, Any]):
        """Write down what is asked for, and put it into the queue."""
        self.write("run.json", {**request, "created": time.time()})
        queue.submit(self.path, TRAIN, request["command"])

    def go_on(self, queue: WorkQueue):
        """Run the same command again, which goes on from its last checkpoint.

        Raises:
            ValueError: the run is not interrupted, or the server does not know its command.
        """
        command = self.request["command"]
        if self.condition(queue) is not Condition.INTERRUPTED or not command:
            raise ValueError(f"{self.title}: only an interrupted run that was started here can go on")
        queue.submit(self.path, TRAIN, command)

    def condition(self, queue: WorkQueue) -> Condition:
        """What the run is doing, from the queue, its process and its worker's state."""
        state, status = self.read(STATE), self.status(TRAIN)
        said = state.get("state")
        if queue.position(self.path, TRAIN):
            return Condition.QUEUED
        if said in ("running", "paused"):
            if alive(state.get("pid")):
                return Condition(said)
            return Condition.STARTING if queue.active(self.path, TRAIN) else Condition.INTERRUPTED
        if said in list(Condition):
            return Condition(said)
        if queue.active(self.path, TRAIN) or "exit" not in status and alive(status.get("pid")):
            return Condition.STARTING
        if status.get("exit"):
            return Condition.FAILED if status["exit"] > 0 else Condition.INTERRUPTED
        return Condition.INTERRUPTED if self.read("run.json") else Condition.BROUGHT

    def status(self, job: str) -> dict[str, Any]:
        """Process, times and exit code of a job."""
        return self.read(f"jobs/{job}/status.json")

    def output(self, job: str) -> str:
        """The end of what a job has printed."""
        try:
            with (self.path / "jobs" / job / "output.txt").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - SHOWN))
                return cleaned(file.read().decode(errors="replace"), "\n").strip()
        except OSError:
            return ""

    def command(self, content: Mapping[str, Any]) -> int:
        """Give the worker a command, and return its number; two pages that write at once get two numbers."""
        folder = self.path / "commands"
        folder.mkdir(exist_ok=True)
        part = folder / f".{secrets.token_hex(8)}.part"
        part.write_text(json.dumps(content))
        number = max((int(path.stem) for path in folder.glob("[0-9]*.json")), default=0)
        try:
            while True:
                number += 1
                try:
                    os.link(part, folder / f"{number:06}.json")  # fails where there is one, which renaming does not
                except FileExistsError:
                    continue
                return number
        finally:
            part.unlink()


def unwatched(command: list[str]) -> list[str]:
    """A command that trains without `WATCHED`, which gives the same model without a page."""
    return command[: -len(WATCHED)] if tuple(command[-len(WATCHED) :]) == WATCHED else command


def all_runs(runs: Path) -> Iterator[RunFolder]:
    """All runs, the newest first; those that users started by hand, too."""
    folders = [RunFolder(path) for path in runs.iterdir() if path.is_dir()] if runs.is_dir() else []
    there = [run for run in folders if any((run.path / name).is_file() for name in KEPT)]
    yield from sorted(there, key=lambda run: run.created, reverse=True)


def recovered(runs: Path, queue: WorkQueue):
    """Take over what a server before this one left: workers that run, and runs that waited."""
    for run in sorted(all_runs(runs), key=lambda run: run.created):
        for path in (run.path / "jobs").glob("*/status.json"):
            status = run.status(path.parent.name)
            if "exit" not in status and alive(status.get("pid")):
                queue.attend(run.path, path.parent.name, status["pid"])
        if run.read("run.json") and not run.read(STATE) and not run.status(TRAIN):
            queue.submit(run.path, TRAIN, run.request["command"])
