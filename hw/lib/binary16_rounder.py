"""One lane of the converter, which computes golden.lib.float16.from_integer in hardware."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from concord.hw.lib.arithmetic import sum_or_difference, tree
from concord.hw.lib.float16 import INFINITY, leading_zeros, rounded, shift_left
from concord.hw.lib.pipeline import delay
from concord.spec.machine import timing

_PART = 8  #: Number of bits whose leading zeros are counted in one cycle.


class Binary16Rounder(wiring.Component):
    """Computes binary16(value * 2**-scale), rounded once to nearest even; zero is +0, and an underflow keeps its sign.

    Args:
        width:  Number of bits of `value`, sign included, at least 2.
        scales: Range of `scale`, within -64..63. A scale above `width + 13` widens the shifter.

    Members:
        value: In(signed(width)). Integer to convert.
        scale: In(signed(7)). Negative exponent of the value's unit.
        o: Out(16). Bits of the binary16 result.

    Timing:
        One result a cycle, `latency` cycles later. Never stalls; reset does nothing.
    """

    latency = timing.ROUND

    def __init__(self, width: int, scales: range = range(-64, 64)):
        if width < 2:
            raise ValueError(f"a signed integer has at least 2 bits, not {width}")
        if not -64 <= scales[0] <= scales[-1] < 64:
            raise ValueError(f"scales are signed 7-bit integers, but {scales[0]}..{scales[-1]} was asked for")
        self.width, self.scales = width, scales
        super().__init__({"value": In(signed(width)), "scale": In(signed(7)), "o": Out(16)})

    def elaborate(self, platform):
        m = Module()
        # Bit 0 of the magnitude weighs 2**-scale, the unit of a result 2**(field - 24). Moved left until its highest
        # one is on top, the magnitude has the field `limit - count`; a subnormal moves `limit` bits only. Zeros on
        # top keep `limit` from being negative.
        magnitude = Signal(max(self.width, self.scales[-1] - 13))
        m.d.comb += magnitude.eq(
            sum_or_difference(m, platform, Const(0, self.width), self.value.as_unsigned(), self.value[-1]))
        magnitude = delay(m, magnitude, 1)
        limit = delay(m, (len(magnitude) + 13 - self.scale)[:bits_for(len(magnitude) + 13 + 64)], 1)

        count, none = _leading_zeros(m, magnitude)
        magnitude, limit = (delay(m, value, 2) for value in (magnitude, limit))

        field = limit - count
        subnormal = none | (field < 0)
        shift = delay(m, Mux(subnormal, limit, count)[:len(count)], 1)
        field = delay(m, Mux(subnormal, 0, field)[:len(limit)], 1)
        magnitude = delay(m, magnitude, 1)

        value = _shifted(m, Cat(Const(0, max(0, 12 - len(magnitude))), magnitude), shift)
        field = delay(m, field, 2)

        bits = Mux(field >= 30, INFINITY, rounded(field[:5], value))
        m.d.comb += self.o.eq(delay(m, Cat(bits, delay(m, self.value < 0, self.latency - 1)), 1))
        return m


def _leading_zeros(m, value):
    """What `leading_zeros` gives, two cycles later: first that of parts, then what parts say of the whole."""
    width = 1 << (len(value) - 1).bit_length()
    value, size = Cat(Const(0, width - len(value)), value), min(width, _PART)
    parts = [leading_zeros(value[low:low + size]) for low in range(0, width, size)]
    parts = [(delay(m, count, 1), delay(m, none, 1)) for count, none in parts]
    count, none = tree(parts, lambda low, high: (Cat(Mux(high[1], low[0], high[0]), high[1]), low[1] & high[1]))
    return delay(m, count, 1), delay(m, none, 1)


def _shifted(m, value, amount):
    """The highest 12 bits of value << amount, and below them whether a 1 is left, two cycles later.

    The first cycle shifts by the high bits of the amount, and keeps what the low ones may still move up.
    """
    low = len(amount) // 2
    keep = min(len(value), 12 + (1 << low) - 1)
    value, lost = shift_left(value, Cat(Const(0, low), amount[low:]), keep)
    value, lost, amount = (delay(m, each, 1) for each in (value, lost, amount[:low]))
    value, lower = shift_left(value, amount, 12)
    return delay(m, Cat(lost | lower, value), 1)
