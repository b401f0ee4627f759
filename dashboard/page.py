"""What all pages share: the desk with settings and queue, templates, and numbers as text."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from concord.dashboard.run_folder import RunFolder
from concord.dashboard.settings import Settings
from concord.dashboard.work_queue import WorkQueue
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import HTMLResponse

#: Most streams at once: each page that watches a run has one.
STREAMS = 100


@dataclass(kw_only=False, slots=True)
class Desk:
    """What pages work with.

    Attributes:
        settings: Settings of the server.
        queue:    The queue of commands.
        streams:  Number of open streams.
    """

    settings: Settings
    queue: WorkQueue
    streams: int = field(default=0)


def ago(moment: float | None) -> str:
    """How long ago a moment is, in words."""
    seconds = max(0, time.time() - (moment or 0))
    for size, unit in (86400, "d"), (3600, "h"), (60, "min"):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


#: Every value in a template is text: names of files, layers and classes are escaped.
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined,
    trim_blocks=True, lstrip_blocks=True)
TEMPLATES.filters |= {
    "ago": ago, "number": lambda value: f"{value:,}",
    "percent": lambda value: "not defined" if value is None else f"{value:.2%}"}


def page(request: Request, name: str, code: int = 200, **values: Any) -> HTMLResponse:
    """A page of a template."""
    return HTMLResponse(TEMPLATES.get_template(name).render(path=request.url.path, **values), code)


def desk(request: Request) -> Desk:
    """The desk of a request's application."""
    return request.app.state.desk


def run_of(request: Request) -> RunFolder:
    """The run that an address names.

    Raises:
        KeyError: there is none.
    """
    return RunFolder.named(desk(request).settings.runs, request.path_params["run"])


async def texts(request: Request) -> dict[str, str]:
    """The values of a form; files in it are left out."""
    async with request.form(max_files=0, max_fields=200) as form:
        return {name: value for name, value in form.items() if not isinstance(value, UploadFile)}
