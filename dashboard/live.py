"""What a worker writes into `live.db`, as much of it as a page needs: its size does not grow with the run's length."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from concord.lib.names import cleaned
from concord.train.live.changes import DATABASE, SteeringChange

#: Buckets of a whole curve, each of which gives its smallest and its largest value.
BUCKETS = 250
#: Buckets of what is new in a curve since the last look, however many steps that are.
NEW_BUCKETS = 8
#: Digits of a number that a page shows or draws.
DIGITS = 5
#: Lines of the log that are sent at once.
LINES = 100
#: Quantities of a layer that its history shows.
HISTORY = (
    "product_events", "sum_events", "output_events", "excess", "bits", "weights_range", "inputs_range",
    "weights_factor", "inputs_factor", "error")
#: Curves by name, with the table that holds each.
CURVES = ("loss", "accuracy")


@contextmanager
def database(folder: Path) -> Iterator[sqlite3.Connection | None]:
    """A context with the database of a run, to read; None where there is none yet."""
    path = folder / DATABASE
    if not path.is_file():
        yield None
        return
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=2)) as found:
        found.row_factory = sqlite3.Row
        yield found


def curve(db: sqlite3.Connection, name: str, after: int, table: str = "steps", layer: str = "") -> list[list[float]]:
    """Steps and values of a quantity after a step, or all if that is -1: the smallest and largest of equal parts."""
    assert name in CURVES or name in HISTORY, name
    where = f"FROM {table} WHERE step > :after AND {name} IS NOT NULL" + " AND layer = :layer" * (table == "layers")
    given: dict[str, Any] = {"after": after, "layer": layer}
    first, last = db.execute(f"SELECT min(step), max(step) {where}", given).fetchone()
    if first is None:
        return [[], []]
    buckets = BUCKETS if after < 0 else NEW_BUCKETS
    given |= {"first": first, "width": max(1, (last - first + buckets) // buckets)}
    found = {
        tuple(row)
        for extreme in ("min", "max")
        for row in db.execute(f"SELECT step, {extreme}({name}) {where} GROUP BY (step - :first) / :width", given)
    }
    rows = sorted(found)
    return [[row[0] for row in rows], [_short(row[1]) for row in rows]]


def _short(value: Any) -> Any:
    """A number with `DIGITS` digits; others as they are."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def layers(db: sqlite3.Connection) -> list[dict[str, Any]]:
    """The latest row of each layer, in the order of the network."""
    rows = db.execute(
        "SELECT * FROM layers WHERE rowid IN (SELECT max(rowid) FROM layers GROUP BY layer) "
        "ORDER BY (SELECT min(rowid) FROM layers AS of WHERE of.layer = layers.layer)"
    )
    return [
        {name: _short(value) for name, value in row.items()}
        | {"layer": cleaned(row["layer"]), "histogram": _histogram(row["histogram"])} for row in map(dict, rows)]


def names(folder: Path) -> set[str]:
    """Names of the layers of a run."""
    with database(folder) as db, suppress(sqlite3.Error):
        return {row[0] for row in db.execute("SELECT DISTINCT layer FROM layers")} if db else set()
    return set()


def _histogram(text: str | None) -> dict[str, int]:
    """Numbers of sums by the bits that they need."""
    try:
        return {str(int(bits)): int(count) for bits, count in json.loads(text or "{}").items()}
    except (ValueError, AttributeError):
        return {}


def history(folder: Path, layer: str) -> dict[str, list[list[float]]]:
    """Curves of all quantities of a layer over the run."""
    found = {}
    with database(folder) as db:
        if db is None:
            return {}
        for name in HISTORY:
            with suppress(sqlite3.Error):  # the worker makes its tables, or an older version has made them
                found[name] = curve(db, name, -1, "layers", layer)
    return found


class Reader:
    """Reads what is new in a run, for one page.

    Args:
        folder: Folder of the run.
    """

    def __init__(self, folder: Path):
        self.folder, self.step, self.line, self.answer, self.table = folder, -1, 0, 0, -1

    def changes(self) -> dict[str, Any]:
        """Points of the curves, layers, lines of the log and answers since the last call; empty if there are none."""
        with database(self.folder) as db:
            if db is None:
                return {}
            try:
                return self._read(db)
            except sqlite3.Error:  # the worker makes its tables, or is going on from a checkpoint
                return {}

    def _read(self, db: sqlite3.Connection) -> dict[str, Any]:
        latest = db.execute("SELECT max(step) FROM steps").fetchone()[0]
        latest = -1 if latest is None else latest
        changes: dict[str, Any] = {}
        if latest < self.step:  # it goes on from a checkpoint, and later rows are dropped
            self.step, self.table, self.line, changes["again"] = -1, -1, 0, True
        if latest > self.step:
            changes |= {name: curve(db, name, self.step) for name in CURVES}
            self.step = latest
        if (table := db.execute("SELECT max(step) FROM layers").fetchone()[0]) is not None and table != self.table:
            changes["layers"], self.table = layers(db), table
        if log := self._lines(db):
            changes["log"] = log
        if answers := self._answers(db):
            changes["answers"] = answers
        return changes

    def _lines(self, db: sqlite3.Connection) -> list[dict[str, Any]]:
        """New lines of the log, the latest `LINES` of them."""
        rows = db.execute(
            "SELECT number, step, time, text, change FROM log WHERE number > ? ORDER BY number DESC LIMIT ?",
            (self.line, LINES)).fetchall()
        if rows:
            self.line = rows[0]["number"]
        return [{**dict(row), "text": cleaned(row["text"])} for row in reversed(rows)]

    def _answers(self, db: sqlite3.Connection) -> list[dict[str, Any]]:
        """New answers to questions what would be."""
        query = "SELECT rowid AS row, id, step, text FROM what_if WHERE rowid > ? ORDER BY rowid DESC LIMIT 5"
        rows = db.execute(query, (self.answer,)).fetchall()
        if rows:
            self.answer = rows[0]["row"]
        return [{"id": row["id"], "step": row["step"], "answer": json.loads(row["text"])} for row in reversed(rows)]


def widths(command: list[str], changes: Sequence[SteeringChange]) -> dict[str, int | None]:
    """Widths of the storage now: those of the command line, and what was changed since."""
    options = {"accumulator": "--accumulator", "product_bits": "--product-limit", "output_bits": "--output-limit"}
    found: dict[str, int | None] = {}
    for name, option in options.items():
        given = dict(zip(command, command[1:], strict=False)).get(option)
        found[name] = int(given) if given and given.isdecimal() else None
    for change in changes:
        if change.what in found:
            found[change.what] = int(change.value or 0)
    return found
