"""Clocks that machines reached for boards: `nox -s machine_clocks` places and routes them, and writes clocks.toml.

They are no part of a configuration: its digest does not depend on what tools reach.
"""

import statistics
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from concord.spec.machine.config import Config

RECORD = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredClock:
    """The clock of a machine, placed and routed for a board.

    Attributes:
        digest: Digest of the machine's configuration, as `nnp presets` prints it.
        board:  Name of the board.
        mhz:    Clock in MHz that each seed of placement reached, from the slowest to the fastest.
        cells:  Number of lookup tables (COMB) after packing.
        tools:  Versions of Yosys and nextpnr.
    """

    digest: str
    board: str
    mhz: tuple[float, ...]
    cells: int
    tools: str

    @property
    def median(self) -> float:
        """The median of the seeds in MHz."""
        return statistics.median(self.mhz)


@cache
def recorded() -> dict[str, MeasuredClock]:
    """All rows, by the name of the preset, or of the file in machines/."""
    rows = tomllib.loads(RECORD.read_text()) if RECORD.exists() else {}
    return {name: MeasuredClock(**row | {"mhz": tuple(row["mhz"])}) for name, row in rows.items()}


def measured_clock(config: Config) -> MeasuredClock | None:
    """The row of a machine; None if it was not routed."""
    return next((row for row in recorded().values() if row.digest == f"{config.digest:08x}"), None)
