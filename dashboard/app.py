"""The application: its parts, its pages by address, and errors as sentences."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from concord.dashboard import bringing, finished, overview, watching
from concord.dashboard.execution import LEAVING
from concord.dashboard.page import Desk, page
from concord.dashboard.run_folder import recovered
from concord.dashboard.security import Guard, TooMuch, too_much
from concord.dashboard.settings import Settings
from concord.dashboard.work_queue import WorkQueue
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

HERE = Path(__file__).parent
#: Pages and actions: address, function, and method.
PAGES = (
    ("/", overview.runs, "GET"), ("/compare", overview.compare, "GET"), ("/new", bringing.bring, "GET"),
    ("/new", bringing.brought, "POST"), ("/runs/{run}/choose", bringing.choose, "GET"),
    ("/runs/{run}/check", bringing.check, "POST"), ("/runs/{run}/try", bringing.try_machine, "POST"),
    ("/runs/{run}/start", bringing.start, "POST"), ("/runs/{run}", watching.watch, "GET"),
    ("/runs/{run}/stream", watching.stream, "GET"), ("/runs/{run}/history", watching.layer_history, "GET"),
    ("/runs/{run}/curves", watching.curves, "GET"), ("/runs/{run}/steer", watching.steer, "POST"),
    ("/runs/{run}/go-on", watching.go_on, "POST"), ("/runs/{run}/cancel", watching.cancel, "POST"),
    ("/runs/{run}/jobs/{job}", finished.begin_job, "POST"), ("/runs/{run}/jobs", finished.jobs, "GET"),
    ("/runs/{run}/files/{name}", finished.download, "GET"))


def application(settings: Settings, executor: Executor) -> Guard:
    """The dashboard.

    Args:
        settings: Where it listens, and what it reads.
        executor: What runs commands.
    """
    queue = WorkQueue(executor, settings.scheduler)

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        LEAVING.clear()
        settings.runs.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(recovered, settings.runs, queue)
        yield
        LEAVING.set()
        executor.shutdown(wait=False, cancel_futures=True)

    routes: list[BaseRoute] = [Route(path, function, methods=[method]) for path, function, method in PAGES]
    routes.append(Mount("/static", StaticFiles(directory=HERE / "static")))
    app = Starlette(
        routes=routes,
        lifespan=life,
        exception_handlers={
            ValueError: partial(_refused, code=400), KeyError: _missing, HTTPException: _missing, TooMuch: _large},
    )
    app.state.desk = Desk(settings, queue)
    return Guard(app, settings)


def _refused(request: Request, error: Exception, code: int) -> Response:
    """A sentence about what the user can correct: a page, or text for a script."""
    if "text/html" not in request.headers.get("accept", ""):
        return PlainTextResponse(str(error), code)
    return page(request, "refused.html", code, words=str(error))


def _missing(request: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 404
    return _refused(request, ValueError("There is no such page or run." if code == 404 else f"Error {code}."), code)


def _large(request: Request, error: Exception) -> Response:
    return too_much(error.args[0])
