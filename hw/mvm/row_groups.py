"""Groups of neighbouring rows, through which beats and tiles move like a wave: from one group to the next in a cycle.

A register that drove all rows would reach over the whole chip; that of a group drives its rows, and the one of the next
group.
"""

from dataclasses import dataclass

from amaranth import *
from concord.hw.lib.pipeline import copies
from concord.hw.lib.timekeeper import rows as rows_of
from concord.hw.mvm.dot_products import groups, joins
from concord.spec.machine.config import Config

ROWS = 4  #: Largest number of rows of a group.


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Neighbouring rows.

    Attributes:
        rows: Number of rows.
        late: Cycles by which they work later than the first row.
    """

    rows: int
    late: int


def row_groups(config: Config) -> list[RowGroup]:
    """The groups of all rows.

    Rows that share multipliers are in one group. Words of results leave one a cycle, row by row: the rows of a word are
    late by no more cycles than words leave before it.
    """
    made, first, at_once = [], 0, max(ROWS, config.mfu_lanes)
    shared = [group.rows for group in groups(config, joins(config))]
    for rows in (*shared, *[1] * (rows_of(config) - sum(shared))):
        late = first // at_once
        if made and made[-1].late == late and made[-1].rows + rows <= ROWS:
            made[-1] = RowGroup(made[-1].rows + rows, late)
        else:
            made.append(RowGroup(rows, late))
        first += rows
    return made


def lateness(config: Config) -> list[int]:
    """Cycles by which each row works later than the first one."""
    return [group.late for group in row_groups(config) for _ in range(group.rows)]


def along(m: Module, signal, config: Config, *, reset_less: bool = True) -> list:
    """`signal` for each row, one cycle and the row's lateness later; rows of a group have one register."""
    made, after = [], {-1: signal}
    for group in row_groups(config):
        (register,) = copies(m, after[group.late - 1], 1, reset_less=reset_less)
        after.setdefault(group.late, register)
        made += [register] * group.rows
    return made
