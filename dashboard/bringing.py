"""Pages on which a network and data are brought, and a run is chosen and started."""

import shlex
import shutil
from pathlib import Path
from typing import Any

from concord.dashboard.choices import FIELDS, MEASURED, Choice, checked, defaults
from concord.dashboard.inspection import SHIPPED, look
from concord.dashboard.page import desk, page, run_of, texts
from concord.dashboard.paths import ENDINGS, below, kept
from concord.dashboard.run_folder import WATCHED, Condition, RunFolder, unwatched
from concord.lib.names import cleaned
from concord.spec.machine.machine_file import read_config
from concord.train.live.changes import MODEL
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

#: Longest name of a run.
LONGEST = 80
#: Bits of the accumulator of a shipped network that runs with one click.
ACCUMULATOR = "16"


def bring(request: Request) -> Response:
    """The form for a network and its data."""
    return page(request, "bring.html", **_bringing(request))


def _bringing(request: Request, error: str = "") -> dict[str, Any]:
    settings = desk(request).settings
    return {
        "shipped": SHIPPED, "roots": [str(root) for root in settings.roots], "error": error, "endings": ENDINGS,
        "limit": settings.upload // 2**20}


async def brought(request: Request) -> Response:
    """Keep what was brought, and look into it; what is refused is said with the way out."""
    run = RunFolder.made(desk(request).settings.runs)
    try:
        async with request.form(max_files=3, max_fields=10) as form:
            found, at_once = await _inspected(request, run, form), "at_once" in form
    except BaseException as error:
        shutil.rmtree(run.path)
        if not isinstance(error, ValueError | HTTPException):
            raise
        words = "The form could not be read: send it again."
        if isinstance(error, ValueError):
            words = str(error).replace(f"{run.path}/", "")
        return page(request, "bring.html", 400, **_bringing(request, words))
    run.write("import.json", found)
    if at_once:
        choice, _ = checked(defaults(found) | {"accumulator": ACCUMULATOR}, found, run.path)
        assert choice, "defaults are right"
        return _begun(request, run, choice, found["title"])
    return RedirectResponse(f"/runs/{run.name}/choose", 303)


async def _inspected(request: Request, run: RunFolder, form: FormData) -> dict[str, Any]:
    """What the inspection finds in the files of a form, with their paths and the name of the run.

    Raises:
        ValueError: a file is missing, outside, or refused.
    """
    shipped = str(form.get("shipped") or form.get("at_once") or "")
    if shipped:
        paths, named = {"network": "inputs/network.safetensors", "data": "inputs/data.npz"}, shipped
        found = await look(run.path, {"shipped": shipped})
    else:
        paths = {what: await _path(request, run, form, what) for what in ("network", "data")}
        upload = form.get("network")
        named = upload.filename if isinstance(upload, UploadFile) and upload.filename else Path(paths["network"]).name
        found = await look(run.path, paths)
    if "error" in found:
        raise ValueError(found["error"])
    machine = form.get("machine")
    if isinstance(machine, UploadFile) and machine.filename:
        paths["machine"] = f"inputs/{await kept(machine, 'machine', run.path / 'inputs')}"
        read_config(run.path / paths["machine"])
    return found | {"paths": paths, "title": cleaned(str(form.get("name") or "").strip() or named)[:LONGEST]}


async def _path(request: Request, run: RunFolder, form: FormData, what: str) -> str:
    """The path of a file of the form: of an upload below the run's folder, or one that the user names."""
    upload, text = form.get(what), str(form.get(f"{what}_path") or "").strip()
    if isinstance(upload, UploadFile) and upload.filename:
        return f"inputs/{await kept(upload, what, run.path / 'inputs')}"
    if text:
        return str(below(desk(request).settings.roots, text))
    raise ValueError(f"{what}: choose a file to upload, or name one on the server")


def choose(request: Request) -> Response:
    """What was found in the files, and the form of the run."""
    run = run_of(request)
    imported = run.imported
    if not imported:
        return RedirectResponse(f"/runs/{run.name}", 303)
    return page(
        request, "choose.html", run=run, imported=imported, fields=FIELDS, values=defaults(imported), wrong={},
        measured=MEASURED[imported["kind"]])


async def check(request: Request) -> Response:
    """What is wrong with a form, by the names of its fields, and the command that it makes."""
    run = run_of(request)
    choice, wrong = checked(await texts(request), run.imported, run.path)
    command = shlex.join(["nnp", *unwatched(_command(run, choice.words))]) if choice else ""
    return JSONResponse({"wrong": wrong, "command": command})


async def try_machine(request: Request) -> Response:
    """Whether the chosen machine takes the network, which is tried; the reason beside its field if not."""
    run = run_of(request)
    paths = run.imported["paths"]
    choice, wrong = checked(await texts(request), run.imported, run.path)
    if choice is None or not choice.options:
        return JSONResponse({"wrong": wrong, "machine": ""})
    options = {name: str(value) if isinstance(value, str) else value for name, value in choice.options.items()}
    found = await look(run.path, {"network": paths["network"], "data": paths["data"], "options": options})
    wrong = {"preset": found["error"].replace("tried ", "the network ")} if "error" in found else {}
    return JSONResponse({"wrong": wrong, "machine": found.get("machine", "")})


def _command(run: RunFolder, words: tuple[str, ...]) -> list[str]:
    """The command line of a run after `nnp`, which runs in its folder."""
    paths = run.imported["paths"]
    return ["train", paths["network"], "--data", paths["data"], *words, "--out", MODEL, *WATCHED]


async def start(request: Request) -> Response:
    """Start the run of a form; or the form again, with what is wrong."""
    run, form = run_of(request), await texts(request)
    imported = run.imported
    if run.condition(desk(request).queue) is not Condition.BROUGHT:
        raise ValueError(f"{run.title} was started before: bring the network again for another run")
    choice, wrong = checked(form, imported, run.path)
    if choice is None:
        return page(
            request, "choose.html", 400, run=run, imported=imported, fields=FIELDS, values=form, wrong=wrong,
            measured=MEASURED[imported["kind"]])
    return _begun(request, run, choice, form.get("name", "").strip() or imported["title"])


def _begun(request: Request, run: RunFolder, choice: Choice, title: str) -> Response:
    """Put a run into the queue, and go to its page."""
    imported = run.imported
    run.start(
        desk(request).queue,
        {
            "name": cleaned(title)[:LONGEST], "kind": imported["kind"], "command": _command(run, choice.words),
            "options": choice.words,
            "network": imported["paths"]["network"], "data": imported["paths"]["data"], "fit": choice.fit},
    )
    return RedirectResponse(f"/runs/{run.name}", 303)
