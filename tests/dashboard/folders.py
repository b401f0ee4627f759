"""Folders of runs as their workers fill them, for tests of pages."""

import json
import sqlite3
import time
from pathlib import Path

from concord.train.live.live_database import TABLES


def filled(
    folder: Path, steps: int = 1000, names: tuple[str, ...] = ("one", "two"), over: bool = True,
    state: str = "finished", pid: int = 0) -> Path:
    """A run of some steps in which the first layer overflows, or none."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(
        json.dumps(
            {
                "name": folder.name,
                "kind": "dnn",
                "created": 1.0,
                "data": "inputs/data.npz",
                "network": "inputs/network.onnx",
                "command": [
                    "train", "inputs/network.onnx", "--data", "inputs/data.npz", "--accumulator", "12",
                    "--out", "model.safetensors", "--run", "."],
                "options": ["--accumulator", "12"],
            }
        )
    )
    written = {"epoch": 2, "epochs": 5, "step": steps, "steps": 2 * steps, "seconds_left": 42}
    (folder / "state.json").write_text(json.dumps({"state": state, "pid": pid} | written))
    (folder / "live.db").unlink(missing_ok=True)
    with sqlite3.connect(folder / "live.db") as db:
        db.executescript("PRAGMA journal_mode = WAL;" + TABLES)
        add(db, range(1, steps + 1), names, over)
        db.execute("INSERT INTO log VALUES (1, 1, 1.0, 'training begins', NULL)")
    db.close()
    return folder


def add(db: sqlite3.Connection, steps: range, names: tuple[str, ...], over: bool):
    """Add rows of some steps."""
    db.executemany(
        "INSERT INTO steps VALUES (?, 1, ?, ?, 0.01, ?)",
        ((step, 2 / step**0.3, None if step % 50 else 1 - 1 / step**0.5, float(step)) for step in steps))
    for step in (step for step in steps if step % 10 == 0 or step == steps[-1]):
        for index, name in enumerate(names):
            events = 17 if over and index == 0 else 0
            bits = 14 if events else 11
            counts = {bits - back: 4**back for back in range(8)}
            db.execute(
                "INSERT INTO layers VALUES (?, ?, 0, ?, 0, 100000, ?, ?, 0.7, 3.5, 1.25, 1.1, ?, 0.02)",
                (step, name, events, max(0, bits - 12), bits, json.dumps(counts)))


def waits(condition, seconds: float = 30):
    """Wait until a condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)
