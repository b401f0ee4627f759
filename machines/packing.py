"""Estimates what nextpnr packs and which clock it reaches, fitted to whole machines that `nox -s sweep` measured."""

import csv
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from concord.machines.estimate import estimate, least_squares
from concord.spec.machine.config import Config
from concord.spec.machine.machine_file import BASE, config_from_text

PLACE = Path(__file__).with_name("swept.csv")
KINDS = ("COMB", "FF", "MULT18", "DP16KD")  #: Kinds of cells that are recorded.


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """A machine on a board, after packing.

    Attributes:
        preset:  Name of the preset that it is based on.
        changes: What it changes, as TOML on one line.
        cells:   Number of cells of each of `KINDS`.
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
    """All machines that were measured."""
    if not PLACE.exists():
        return []
    with PLACE.open(newline="") as file:
        return [Swept(preset=row["preset"], changes=row["changes"], cells={kind: int(row[kind]) for kind in KINDS},
                      mhz=float(row["MHz"]) if row["MHz"] else None) for row in csv.DictReader(file)]


def write_swept(rows: list[Swept]) -> None:
    """Write all machines that were measured."""
    _coefficients.cache_clear()
    with PLACE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["preset", "changes", *KINDS, "MHz"])
        for row in rows:
            writer.writerow([row.preset, row.changes, *(row.cells[kind] for kind in KINDS), row.mhz or ""])


def comb(config: Config, without: str = "") -> int:
    """Estimated number of COMB after packing.

    Args:
        without: Changes of a machine in `swept.csv` that is left out of the fit, here and below.

    Raises:
        ValueError: fewer machines were measured than the fit has coefficients.
    """
    return round(float(np.dot(_coefficients("COMB", without), _size(config))) / 100) * 100


def clock(config: Config, without: str = "") -> float:
    """Estimated clock in MHz of one seed, placed for 100 MHz: the longest path grows with the chip's used side.

    Raises:
        ValueError: fewer machines were routed than the fit has coefficients.
    """
    return 1000 / float(np.dot(_coefficients("clock", without), _side(comb(config, without))))


def errors(kind: str) -> list[float]:
    """Relative errors of the estimate "COMB" or "clock" for each machine, which is left out of the fit."""
    guess = comb if kind == "COMB" else clock
    return [guess(row.config, row.changes) / real - 1 for row, real in _measured(kind)]


def _size(config: Config) -> tuple[float, float]:
    """A constant, and the LUT4 of all units, each on its own."""
    return 1, estimate(config)["LUT4"]


def _side(cells: float) -> tuple[float, float]:
    """A constant, and the side of a square of so many cells."""
    return 1, cells ** 0.5


def _measured(kind: str) -> list[tuple[Swept, float]]:
    """Machines of which "COMB" or "clock" was measured, and that."""
    if kind == "COMB":
        return [(row, row.cells["COMB"]) for row in read_swept()]
    return [(row, row.mhz) for row in read_swept() if row.mhz]


@cache
def _coefficients(kind: str, without: str) -> np.ndarray:
    rows = [(row, real) for row, real in _measured(kind) if row.changes != without]
    if len(rows) < 2:
        raise ValueError(f"{PLACE} has too few machines for an estimate: run nox -s sweep -- --record")
    if kind == "COMB":
        return least_squares(np.array([_size(row.config) for row, _ in rows]), np.array([real for _, real in rows]))
    return least_squares(np.array([_side(row.cells["COMB"]) for row, _ in rows]),
                         np.array([1000 / real for _, real in rows]))
