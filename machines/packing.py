"""Estimates what nextpnr packs and which clock it reaches, fitted to whole machines that `nox -s sweep` measured."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from concord.machines.estimate import estimate, least_squares
from concord.spec.machine.config import Config
from concord.spec.machine.machine_file import BASE, config_from_text

PATH = Path(__file__).with_name("swept.csv")
_OTHERS = ("preset", "changes", "MHz")  # columns that are no kinds of cells


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """A machine on a board, after packing.

    Attributes:
        preset:  Name of the preset that it is based on.
        changes: What it changes, as TOML on one line.
        cells:   Number of cells of each kind; "COMB" is one.
        mhz:     Its clock, if it was routed.
    """

    preset: str
    changes: str
    cells: dict[str, int] = field(default_factory=dict)
    mhz: float | None = None

    @property
    def config(self) -> Config:
        """The machine."""
        return config_from_text(f'{BASE} = "{self.preset}"\n' + self.changes.replace("; ", "\n"))


def read_swept() -> list[Swept]:
    """All machines that were recorded; none where there is no record."""
    if not PATH.exists():
        return []
    with PATH.open(newline="") as file:
        return [Swept(preset=row["preset"], changes=row["changes"], mhz=float(row["MHz"]) if row["MHz"] else None,
                      cells={kind: int(count) for kind, count in row.items() if kind not in _OTHERS})
                for row in csv.DictReader(file)]


def write_swept(rows: Sequence[Swept]) -> None:
    """Record machines, instead of those that were recorded before."""
    with PATH.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["preset", "changes", *rows[0].cells, "MHz"], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({"preset": row.preset, "changes": row.changes, **row.cells, "MHz": row.mhz or ""})


@dataclass(frozen=True, slots=True)
class Packing:
    """Estimates that are fitted to machines.

    Attributes:
        terms:  COMB of every machine, and for each LUT4 of its units, each on its own.
        delays: Nanoseconds of every longest path, and for each COMB on the side of the square that all of them fill.
    """

    terms: np.ndarray
    delays: np.ndarray

    def comb(self, config: Config) -> int:
        """Estimated number of COMB after packing."""
        return round(float(self.terms @ (1, estimate(config)["LUT4"])) / 100) * 100

    def clock(self, cells: int) -> float:
        """Estimated clock in MHz of one seed of a machine of so many COMB."""
        return 1000 / float(self.delays @ (1, cells**0.5))


def fit(rows: Sequence[Swept]) -> Packing:
    """The estimates that fit machines best.

    Raises:
        ValueError: fewer than two of them were routed.
    """
    routed = [(row.cells["COMB"] ** 0.5, 1000 / row.mhz) for row in rows if row.mhz]
    if len(routed) < 2:
        raise ValueError(f"clocks are estimated from two routed machines at least, and {len(routed)} is there: "
                         "let nox -s sweep take more machines")
    sizes, cells = zip(*((estimate(row.config)["LUT4"], row.cells["COMB"]) for row in rows), strict=True)
    sides, periods = zip(*routed, strict=True)
    return Packing(
        least_squares(np.column_stack([np.ones(len(rows)), sizes]), np.array(cells, float)),
        least_squares(np.column_stack([np.ones(len(routed)), sides]), np.array(periods)))


def errors(rows: Sequence[Swept]) -> tuple[list[float], list[float]]:
    """Relative errors of the estimated COMB of each machine, and of the clock of each routed one, left out of the fit.

    Raises:
        ValueError: fewer than three of them were routed.
    """
    cells, clocks = [], []
    for row in rows:
        others = fit([other for other in rows if other is not row])
        guess = others.comb(row.config)
        cells.append(guess / row.cells["COMB"] - 1)
        if row.mhz:
            clocks.append(others.clock(guess) / row.mhz - 1)
    return cells, clocks
