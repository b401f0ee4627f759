"""Units that were synthesised for an ECP5 (`nox -s synth`), to which the estimate is fitted."""

import csv
from dataclasses import dataclass
from pathlib import Path

from concord.spec.machine.config import Config
from concord.spec.machine.machine_file import BASE, config_from_text

PLACE = Path(__file__).with_name("measured.csv")


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """The cells of one unit.

    Attributes:
        unit:    Name of the unit, or "nnp" for the whole machine.
        machine: Name of the preset, and what was changed in it, as TOML.
        config:  The machine.
        cells:   Number of cells by the name of the resource.
    """

    unit: str
    machine: str
    config: Config
    cells: dict[str, int]


def read_measured() -> list[Measured]:
    """All units that were synthesised, each on its own, without optimisation across the borders of units."""
    found = []
    with PLACE.open(newline="") as file:
        for row in csv.DictReader(file):
            text = f'{BASE} = "{row["preset"]}"\n' + row["changes"].replace("; ", "\n")
            machine = " ".join(filter(None, (row["preset"], row["changes"])))
            cells = {name: int(row[name]) for name in ("LUT4", "DSP", "block RAM")}
            found.append(Measured(unit=row["unit"], machine=machine, config=config_from_text(text), cells=cells))
    return found
