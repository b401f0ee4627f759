"""CRC-32 of 32-bit units: zlib.crc32 in hardware."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["CRC32"]

_POLYNOMIAL = 0xEDB88320  #: IEEE 802.3, lowest bit first.


def _remainder(value: int) -> int:
    """Remainder of `value`, lowest bit first, after 32 more bits of the division."""
    for _ in range(32):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value


class CRC32(wiring.Component):
    """CRC-32 of a sequence of little-endian 32-bit units.

    With units as wide as the remainder, the next remainder is one linear function of `state ^ data`: half the gates of
    the general form, which has two separate inputs.

    Members:
        data: In(32). Next unit.
        valid: In(1). The unit is taken.
        start: In(1). The unit is the first of a sequence.
        crc: Out(32). CRC of all units of the sequence so far.

    Timing:
        `crc` follows 1 cycle after a unit.
    """

    def __init__(self):
        super().__init__({"data": In(32), "valid": In(1), "start": In(1), "crc": Out(32)})

    def elaborate(self, platform):
        m = Module()
        state, mixed = Signal(32), Signal(32)
        columns = [_remainder(1 << k) for k in range(32)]
        m.d.comb += [mixed.eq(self.data ^ (state | self.start.replicate(32))), self.crc.eq(~state)]
        with m.If(self.valid):
            for j in range(32):
                m.d.sync += state[j].eq(Cat(mixed[k] for k in range(32) if columns[k] >> j & 1).xor())
        return m
