"""Runs one command of `nnp` as a process of its own, which goes on when the server ends.

`execute` is a function of a module with plain arguments, so that any `concurrent.futures.Executor` can call it.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from concord.lib.files import write

#: Set when the server ends: nobody waits for processes any more.
LEAVING = threading.Event()
#: Seconds between two looks at a process.
PAUSE = 0.1


def execute(folder: str, job: str, command: list[str]) -> int | None:
    """Run `nnp COMMAND` in the folder of a run, and wait for its end.

    Its output goes to `jobs/JOB/output.txt`; `jobs/JOB/status.json` has its process and, at its end, its exit code.

    Returns:
        The exit code; None if the server ends before.
    """
    path = Path(folder, "jobs", job)
    path.mkdir(parents=True, exist_ok=True)
    # Without a terminal; and a module in the folder is not imported.
    words = [sys.executable, "-P", "-m", "concord.nnp.main", *command]
    with (path / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            words, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True, env=os.environ | {"COLUMNS": "120", "PYTHONUNBUFFERED": "1"})
    status = {"command": command, "pid": process.pid, "started": time.time()}
    write(path / "status.json", json.dumps(status))
    while process.poll() is None:
        if LEAVING.wait(PAUSE):
            return None
    write(path / "status.json", json.dumps(status | {"exit": process.returncode, "ended": time.time()}))
    return process.returncode


def attend(pid: int):
    """Wait for the end of a process that a server before this one began."""
    while alive(pid) and not LEAVING.wait(PAUSE):
        pass


def alive(pid: int | None) -> bool:
    """Whether a process of `nnp` with this number runs: numbers are used again, and a dead child keeps its own."""
    try:
        words = Path(f"/proc/{int(pid or 0)}/cmdline").read_bytes()
    except OSError:
        return False
    return b"nnp" in words
