"""Exact sums to mantissas under a shift, and what the sums measure: docs/trainer.md, exponents."""

from functools import partial
from operator import or_

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lazy.tensor_quantizer import WIDEST, length_below, limit
from concord.hw.lib.arithmetic import digits, shift_digit, sum_or_difference, tree
from concord.hw.lib.pipeline import Registered, delay, delay_control, follow
from concord.hw.trainer.wires import LENGTH, MEASURED, SHIFT
from concord.spec.numbers.lazy import ACCUMULATOR_BITS

_DISTANCE = 7  #: Bits of the shift to the right, counted from the largest shift to the left.
_PLANES = (1, 2, 4)  #: Numbers of planes of mantissas.
LENGTH_CYCLES = (MEASURED - 1).bit_length()  #: Cycles by which `length` is late.


def converted_sums(lanes: int) -> data.StructLayout:
    """A word of sums. `right` is -32..63; mantissas have 1, 2 or 4 planes of 8 bits."""
    return data.StructLayout({"valid": 1, "sums": data.ArrayLayout(signed(ACCUMULATOR_BITS), lanes), "right": SHIFT,
                              "planes": 3})


def converted_mantissas(lanes: int, planes_most: int) -> data.StructLayout:
    """A word of mantissas, and the or over its lanes of |sum| - 1, below a bit that says "not 0"."""
    return data.StructLayout({"valid": 1, "mantissas": data.ArrayLayout(signed(8 * planes_most), lanes),
                              "found": MEASURED})


class SumConverter(wiring.Component):
    """Bring exact sums to mantissas, clip(rs(sum, right)) to 8 * planes bits, and measure them.

    Args:
        lanes:       Number of sums in a word.
        planes_most: Largest number of planes of mantissas: 1, 2 or 4.

    Members:
        i: In({valid, sums, right, planes}). A word of sums.
        o: Out({valid, mantissas, found}). Its mantissas, with their sign up to 8 * planes_most bits. `found` is or-ed
            over all words of a job; `length` makes a length of that.

    Timing:
        A word every cycle, `latency` cycles later. Registers should drive `i`: an adder of 48 bits is the first stage.
    """

    def __init__(self, lanes: int, planes_most: int):
        self.lanes, self.planes_most = lanes, planes_most
        super().__init__({"i": In(converted_sums(lanes)), "o": Out(converted_mantissas(lanes, planes_most))})

    @property
    def latency(self) -> int:
        """Cycles from sums to their mantissas."""
        return 1 + len(digits(_DISTANCE)) + 2

    def elaborate(self, platform):
        m = Module()
        lanes = [Registered(m, self._magnitude(m, platform, value)) for value in self.i.sums]
        shared = Registered(m, {"right": (self.i.right + WIDEST)[:_DISTANCE], "planes": self.i.planes})
        found = delay(m, tree([measured(lane["found"]) for lane in lanes], or_), 1)
        m.d.comb += [self.o.valid.eq(delay_control(m, self.i.valid, self.latency)),
                     self.o.found.eq(delay(m, found, self.latency - 2))]
        stages = [lambda lane, shared, low=low: self._shift(lane, shared["right"], low) for low in digits(_DISTANCE)]
        for stage in (*stages, partial(self._round, m, platform), self._limit):
            lanes = [Registered(m, follow(lane, stage(lane, shared))) for lane in lanes]
            shared = Registered(m, shared)
        m.d.comb += [mantissa.eq(lane["mantissa"]) for mantissa, lane in zip(self.o.mantissas, lanes, strict=True)]
        return m

    def _magnitude(self, m, platform, value):
        """|sum|, with space above it for the largest left shift and below it for one fraction bit."""
        negative, bits = value[-1], value.as_unsigned()
        size = sum_or_difference(m, platform, Const(0, len(bits)), bits, negative)
        return {"negative": negative, "value": Cat(Const(0, WIDEST + 1), size), "beyond": Const(0),
                "found": found_of(m, platform, value)}

    def _shift(self, lane, right, low: int):
        """Shift by one digit, and drop the bits that no later digit brings into the mantissa."""
        value, kept = shift_digit(lane["value"], right, low)[0], 8 * self.planes_most + (1 << low)
        return {"value": value[:kept], "beyond": lane["beyond"] | value[kept:].any()}

    def _by_planes(self, planes, function):
        """function(bits of a mantissa), for the number of planes of a word."""
        first, *more = _PLANES[:_PLANES.index(self.planes_most) + 1]
        found = function(8 * first)
        for number in more:
            found = Mux(planes == number, function(8 * number), found)
        return found

    def _round(self, m, platform, lane, shared):
        """The number with its sign, of a magnitude with one bit of fraction: -(f + half) is ~f + (1 - half)."""
        half, whole, negative = lane["value"][0], lane["value"][1:], lane["negative"]
        above = self._by_planes(shared["planes"], lambda bits: whole[bits - 1:].any())
        mantissa = sum_or_difference(m, platform, Const(0, len(whole)), whole, negative, half ^ negative)
        return {"mantissa": mantissa, "beyond": lane["beyond"] | above}

    def _limit(self, lane, shared):
        """The mantissa, limited to its range; rounding brings positive ones to one above it."""
        bits, negative = 8 * self.planes_most, lane["negative"]
        end = self._by_planes(shared["planes"], lambda width: Const((1 << width - 1) - 1, bits))
        rounded = self._by_planes(shared["planes"], lambda width: lane["mantissa"][width - 1])
        beyond = lane["beyond"] | (rounded & ~negative)
        return limit(follow(lane, {"beyond": beyond, "end": end ^ negative.replicate(bits)}), shared)


def found_of(m, platform, value):
    """|value| - 1, which is -1 + value or ~value, without its sign; above it whether the value is not 0."""
    bits, negative = value[:-1].as_unsigned(), value[-1]
    below = sum_or_difference(m, platform, (~negative).replicate(len(bits)), bits, negative, Const(0, 1))
    return Cat(below, value.any())


def measured(found):
    """What `found_of` has made, as long as `MEASURED`; 0 of a 0."""
    below, some = found[:-1], found[-1]
    return Cat(below & some.replicate(len(below)), Const(0, MEASURED - len(found)), some)


def length(m, found):
    """LENGTH of what a job has measured, LENGTH_CYCLES later: 0 if all sums are 0, else 1 + ceil(log2 of the largest).

    Args:
        m:     Module, which gets the registers.
        found: The or of `found` over all words of the job; it must hold from when the length is asked for.
    """
    below, late = length_below(m, found)
    made = Signal(LENGTH)
    m.d.comb += made.eq(Mux(delay(m, found[-1], late), below + 1, 0))
    return made
