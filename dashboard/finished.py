"""What is done with the model of a run: verification, files, and the commands that do the same."""

import asyncio
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import quote

from concord.dashboard.finishing import JOBS, begin, content, downloads, measured
from concord.dashboard.page import desk, page, run_of
from concord.dashboard.run_folder import RunFolder, unwatched
from concord.dashboard.work_queue import WorkQueue
from concord.train.live.changes import MODEL, STEERING
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

#: Lines of a job's output that are shown.
LINES = 14


def jobs(request: Request) -> Response:
    """A part of the page: each job with its progress and figures, downloads, and commands."""
    run, queue = run_of(request), desk(request).queue
    rows = [_row(run, name, queue) for name in JOBS]
    return page(
        request, "jobs.html", run=run, jobs=rows, model=(run.path / MODEL).is_file(),
        files={name: _size(path) for name, path in downloads(run).items()}, commands=_commands(run),
        busy=any(row["running"] for row in rows))


def _row(run: RunFolder, name: str, queue: WorkQueue) -> dict[str, Any]:
    """A job: whether it can begin, where it stands, and what it has found."""
    job, status = JOBS[name], run.status(name)
    return {
        "name": name, "title": job.title, "position": queue.position(run.path, name),
        "running": queue.active(run.path, name),
        "exit": status.get("exit"),
        "begun": bool(status), "figures": measured(run, name),
        "ready": not job.after or run.status(job.after).get("exit") == 0,
        "after": JOBS[job.after].title if job.after else "", "said": "\n".join(run.output(name).splitlines()[-LINES:])}


def _size(path: Path) -> str:
    """The size of a file, or the number of files of a folder."""
    if path.is_dir():
        return f"{sum(file.is_file() for file in path.rglob('*'))} files"
    return f"{path.stat().st_size / 1000:,.1f} kB"


def _commands(run: RunFolder) -> list[str]:
    """The command lines that have done the same, to be run in a folder with `inputs` of the run."""
    command = run.request["command"]
    steered = ["--steering", STEERING] if (run.path / STEERING).is_file() else []
    done = [run.status(name)["command"] for name in JOBS if "exit" in run.status(name)]
    return [shlex.join(["nnp", *words]) for words in ([*unwatched(command), *steered], *done)] if command else []


async def begin_job(request: Request) -> Response:
    """Put a job into the queue."""
    await asyncio.to_thread(begin, run_of(request), request.path_params["job"], desk(request).queue)
    return PlainTextResponse("it is in the queue")


def download(request: Request) -> Response:
    """A file, or a folder as a zip file."""
    run = run_of(request)
    name, made = content(downloads(run)[request.path_params["name"]])
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(f'{run.name}-{name}')}"}
    return Response(made, media_type="application/octet-stream", headers=headers)
