"""The list of runs, and runs side by side."""

import sqlite3
from contextlib import suppress
from typing import Any

from concord.dashboard.finishing import measured
from concord.dashboard.live import database, layers
from concord.dashboard.page import Desk, desk, page
from concord.dashboard.run_folder import TRAIN, Condition, RunFolder, all_runs
from concord.train.live.changes import MODEL, STATE
from starlette.requests import Request
from starlette.responses import Response

#: Most runs in the list, and side by side.
LISTED, COMPARED = 200, 6


def runs(request: Request) -> Response:
    """All runs, the newest first."""
    at = desk(request)
    found = [_row(run, at) for run, _ in zip(all_runs(at.settings.runs), range(LISTED), strict=False)]
    return page(request, "runs.html", runs=found, folder=str(at.settings.runs), workers=at.settings.workers)


def _row(run: RunFolder, at: Desk) -> dict[str, Any]:
    request, state = run.request, run.read(STATE)
    condition = run.condition(at.queue)
    return {
        "id": run.name, "title": run.title, "kind": request.get("kind", ""), "condition": condition,
        "created": run.created, "position": at.queue.position(run.path, TRAIN),
        "link": f"/runs/{run.name}" + "/choose" * (condition is Condition.BROUGHT), "epoch": state.get("epoch"),
        "epochs": state.get("epochs")}


def compare(request: Request) -> Response:
    """Runs side by side: curves, overflows by layer, accuracy, bits."""
    at = desk(request)
    chosen = request.query_params.getlist("run")[:COMPARED]
    found = [_figures(RunFolder.named(at.settings.runs, name), at) for name in chosen]
    names = list(dict.fromkeys(name for one in found for name in one["layers"]))
    return page(request, "compare.html", runs=found, layers=names)


def _figures(run: RunFolder, at: Desk) -> dict[str, Any]:
    rows, accuracy = [], None
    with database(run.path) as db, suppress(sqlite3.Error):  # the worker makes its tables
        if db is not None:
            rows = layers(db)
            query = "SELECT accuracy FROM steps WHERE accuracy IS NOT NULL ORDER BY step DESC LIMIT 1"
            last = db.execute(query).fetchone()
            accuracy = last and last[0]
    events = {
        row["layer"]: {
            "events": sum(row[f"{kind}_events"] or 0 for kind in ("product", "sum", "output")), "bits": row["bits"]}
        for row in rows
    }
    return _row(run, at) | {
        "layers": events, "accuracy": accuracy, "options": run.request["options"],
        "model": (run.path / MODEL).is_file(), "verified": measured(run, "verify")}
