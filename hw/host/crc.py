"""CRC-32 of message beats: zlib.crc32 in hardware."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

_POLYNOMIAL = 0xEDB88320  #: IEEE 802.3, lowest bit first.


def _remainder(value: int, bits: int) -> int:
    """Remainder of `value`, lowest bit first, after `bits` steps of the division."""
    for _ in range(bits):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value


class CRC32(wiring.Component):
    """CRC-32 of a sequence of little-endian beats.

    The next remainder is one linear function of `state ^ data`: fewer gates than the general form, which has two
    separate inputs.

    Args:
        bits: Number of bits of a beat.

    Members:
        data: In(bits). Next beat.
        valid: In(1). The beat is taken.
        start: In(1). The beat is the first of a sequence.
        crc: Out(32). CRC of all beats of the sequence so far.

    Timing:
        `crc` follows 1 cycle after a beat.
    """

    def __init__(self, bits: int):
        self.bits = bits
        super().__init__({"data": In(bits), "valid": In(1), "start": In(1), "crc": Out(32)})

    def elaborate(self, platform):
        m = Module()
        state, mixed = Signal(32), Signal(max(self.bits, 32))
        columns = [_remainder(1 << k, self.bits) for k in range(len(mixed))]
        m.d.comb += [mixed.eq(self.data ^ (state | self.start.replicate(32))), self.crc.eq(~state)]
        with m.If(self.valid):
            for j in range(32):
                m.d.sync += state[j].eq(Cat(mixed[k] for k in range(len(mixed)) if columns[k] >> j & 1).xor())
        return m
