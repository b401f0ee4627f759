"""Chips of SDR SDRAM with four banks and 16 bits of data, as data sheets describe them."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class SdramChip:
    """A chip. Times are in nanoseconds, if not said otherwise.

    Attributes:
        row_bits:    Bits of a row's address.
        column_bits: Bits of a column's address.
        rcd:         From ACTIVE to READ or WRITE.
        rp:          From PRECHARGE to the next command for its bank.
        ras:         From ACTIVE to PRECHARGE.
        rc:          From ACTIVE to ACTIVE of the same bank.
        rrd:         From ACTIVE to ACTIVE of another bank.
        rfc:         From REFRESH to the next command.
        wr:          From WRITE to PRECHARGE.
        mrd:         Clock cycles from LOAD MODE to the next command.
        refi:        Between two refreshes, on average.
        power_up:    Before the first command, in microseconds.
        period2:     Least clock period with which data come 2 cycles after READ.
        period3:     Least clock period with which they come after 3.
    """

    row_bits: int = 13
    column_bits: int = 9
    rcd: float = 20
    rp: float = 20
    ras: float = 44
    rc: float = 66
    rrd: float = 15
    rfc: float = 66
    wr: float = 15
    mrd: int = 2
    refi: float = 7_812.5
    power_up: float = 100
    period2: float = 10
    period3: float = 7.5

    @property
    def bytes(self) -> int:
        """Its size."""
        return 2 << self.row_bits + self.column_bits + 2

    def cycles(self, time: float, mhz: float) -> int:
        """Clock cycles within which a time has passed."""
        return ceil(time * mhz / 1000 - 1e-6)

    def latency(self, mhz: float) -> int:
        """Clock cycles from READ to its data.

        Raises:
            ValueError: the clock is too fast for the chip.
        """
        for cycles, least in (2, self.period2), (3, self.period3):
            if 1000 / mhz >= least - 1e-3:
                return cycles
        raise ValueError(f"an SDRAM clock of {mhz:g} MHz is too fast: this chip takes {1000 / self.period3:.0f} MHz")


#: Chips by their names. The ULX3S comes with chips of several makers; these times are no shorter than those of any.
CHIPS: Mapping[str, SdramChip] = MappingProxyType({"MT48LC16M16": SdramChip()})
