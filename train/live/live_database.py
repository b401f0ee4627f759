"""The database of a run, `live.db`: what training did step by step, for whoever reads it meanwhile."""

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

TABLES = """
CREATE TABLE IF NOT EXISTS steps(step INTEGER PRIMARY KEY, epoch, loss REAL, accuracy REAL, rate REAL, time REAL);
CREATE TABLE IF NOT EXISTS layers(step, layer TEXT, product_events, sum_events, output_events, counted, excess, bits,
    weights_range REAL, inputs_range REAL, weights_factor REAL, inputs_factor REAL, histogram TEXT, error REAL,
    PRIMARY KEY(step, layer));
CREATE TABLE IF NOT EXISTS log(number INTEGER PRIMARY KEY, step, time, text TEXT, change TEXT);
CREATE TABLE IF NOT EXISTS what_if(id TEXT, step, text TEXT);
CREATE TABLE IF NOT EXISTS taken(number INTEGER PRIMARY KEY);
"""


class LiveDatabase:
    """Rows that are written together, so that a step costs next to nothing.

    A reader never sees half of them, and nothing is lost when the process is killed but what was not written yet.

    Args:
        path: The file.

    Raises:
        ValueError: it is no such database.
    """

    def __init__(self, path: Path):
        try:
            self.db = sqlite3.connect(path)
            self.db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;" + TABLES)
            if "error" not in {row[1] for row in self.db.execute("PRAGMA table_info(layers)")}:  # of an older version
                self.db.execute("ALTER TABLE layers ADD COLUMN error REAL")
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{path}: it is no database of a run ({error}): name another folder") from error
        self.steps: list[tuple] = []
        self.accuracies: list[tuple] = []

    def drop_after(self, step: int):
        """Remove what came after a step, from which training goes on."""
        with self.db:
            for table in "steps", "layers", "log", "what_if":
                self.db.execute(f"DELETE FROM {table} WHERE step > ?", (step,))

    def add_step(self, *row):
        """Keep a row of `steps` until the next `write`."""
        self.steps.append(row)

    def write(self, layers: Iterable[tuple] = ()):
        """Write the rows and accuracies that were kept, and rows of `layers`."""
        with self.db:
            self.db.executemany("INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?, ?, ?)", self.steps)
            self.db.executemany(f"INSERT OR REPLACE INTO layers VALUES ({', '.join('?' * 14)})", layers)
            self.db.executemany("UPDATE steps SET accuracy = ? WHERE step = ?", self.accuracies)
        self.steps.clear()
        self.accuracies.clear()

    def add_accuracy(self, step: int, accuracy: float | None):
        """Keep the accuracy after a step, if it was measured, until the next `write`."""
        if accuracy is not None:
            self.accuracies.append((accuracy, step))

    def add_line(self, step: int, text: str, change: Mapping | None = None):
        """Write a line of the log, with the change that it tells of."""
        with self.db:
            self.db.execute(
                "INSERT INTO log(step, time, text, change) VALUES (?, ?, ?, ?)",
                (step, time.time(), text, json.dumps(change) if change else None),
            )

    def add_answer(self, name: str, step: int, answer: Mapping):
        """Write the answer to a question."""
        with self.db:
            self.db.execute("INSERT INTO what_if VALUES (?, ?, ?)", (name, step, json.dumps(answer)))

    def take(self, number: int):
        """Note that a command was taken."""
        with self.db:
            self.db.execute("INSERT OR IGNORE INTO taken VALUES (?)", (number,))

    @property
    def last_taken(self) -> int:
        """Number of the last command that was taken; 0 for none."""
        return self.db.execute("SELECT coalesce(max(number), 0) FROM taken").fetchone()[0]

    def close(self):
        """Write everything, and close the file."""
        self.write()
        self.db.close()
