"""Pages of a run that trains: its stream, the history of a layer, and steering."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from concord.dashboard.finishing import JOBS
from concord.dashboard.live import CURVES, Reader, curve, database, history, names, widths
from concord.dashboard.page import STREAMS, Desk, desk, page, run_of, texts
from concord.dashboard.run_folder import TRAIN, Condition, RunFolder
from concord.dashboard.steering import ASKING, CHANGES, DOING, command_of
from concord.train.live.changes import STATE, STEERING, read_changes
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse

#: Seconds between two looks at a run, and looks without news after which the page hears that the server is there.
PAUSE, QUIET = 0.3, 30


def watch(request: Request) -> Response:
    """The page of a run."""
    run = run_of(request)
    condition = run.condition(desk(request).queue)
    if condition is Condition.BROUGHT:
        return RedirectResponse(f"/runs/{run.name}/choose", 303)
    return page(
        request, "watch.html", run=run, condition=condition, changes=CHANGES, doing=DOING, asking=ASKING, jobs=JOBS)


def _state(run: RunFolder, at: Desk) -> dict[str, Any]:
    """What the run is doing, with the widths of the machine to come, and why it failed or cannot go on."""
    state, condition = run.read(STATE), run.condition(at.queue)
    changed = []
    with suppress(ValueError):  # there are none yet
        changed = read_changes(run.path / STEERING)
    found = {name: state.get(name) for name in ("epoch", "epochs", "step", "steps", "seconds_left")}
    if condition is Condition.PAUSED:
        found["error"] = state.get("error")
    if condition is Condition.FAILED:
        found["error"] = state.get("error") or run.output(TRAIN)[-1000:] or "nothing was printed"
    return found | {
        "condition": condition, "live": condition.live, "position": at.queue.position(run.path, TRAIN),
        "widths": widths(run.request["command"], changed)}


def stream(request: Request) -> Response:
    """The changes of a run as server-sent events: all of it first, then what is new, at least twice a second."""
    run, at = run_of(request), desk(request)
    if at.streams >= STREAMS:
        return PlainTextResponse(f"{STREAMS} pages watch runs already: close some", 503)
    return StreamingResponse(_events(run, at), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def _events(run: RunFolder, at: Desk) -> AsyncIterator[str]:
    reader, latest, quiet = Reader(run.path), {}, 0
    at.streams += 1
    try:
        while True:
            state = await asyncio.to_thread(_state, run, at)
            news = await asyncio.to_thread(reader.changes)
            if state != latest:
                news["state"] = latest = state
            quiet = 0 if news else quiet + 1
            if news:
                yield f"data: {json.dumps(news)}\n\n"
            elif quiet % QUIET == 0:
                yield ":\n\n"
            await asyncio.sleep(PAUSE)
    finally:
        at.streams -= 1


def layer_history(request: Request) -> Response:
    """Curves of a layer over the run."""
    return JSONResponse(history(run_of(request).path, request.query_params.get("layer", "")))


def curves(request: Request) -> Response:
    """Loss and accuracy over the whole run."""
    with database(run_of(request).path) as db, suppress(sqlite3.Error):  # the worker makes its tables
        return JSONResponse({name: curve(db, name, -1) for name in CURVES} if db else {})
    return JSONResponse({})


async def steer(request: Request) -> Response:
    """Give the worker a command, and say its number; it takes effect at the next step."""
    run, form = run_of(request), await texts(request)
    if run.condition(desk(request).queue) not in (Condition.RUNNING, Condition.PAUSED, Condition.STARTING):
        raise ValueError(f"{run.title} does not train now, so there is nothing to steer")
    command = command_of(form, await asyncio.to_thread(names, run.path))
    number = await asyncio.to_thread(run.command, command)
    return PlainTextResponse(f"command {number} is sent; it takes effect at the next step")


def go_on(request: Request) -> Response:
    """Go on with an interrupted run from its last checkpoint."""
    run = run_of(request)
    run.go_on(desk(request).queue)
    return RedirectResponse(f"/runs/{run.name}", 303)


def cancel(request: Request) -> Response:
    """Take a run out of the queue; it can be started again by `go on`."""
    run = run_of(request)
    if not desk(request).queue.cancel(run.path, TRAIN):
        raise ValueError(f"{run.title} does not wait any more")
    return RedirectResponse(f"/runs/{run.name}", 303)
