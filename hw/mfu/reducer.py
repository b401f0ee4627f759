"""The reductions of the add stage: golden.mfu.reduction in hardware."""

from functools import reduce

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.binary16_rounder import Binary16Rounder
from concord.hw.lib.float16 import INFINITY, NAN, Binary16, significand
from concord.hw.lib.payloads import turn
from concord.hw.lib.pipeline import delay
from concord.spec.isa.operations import Operation, Stage, code_bits
from concord.spec.machine import timing
from concord.spec.numbers.reduction import ELEMENT_BITS, TOTAL_BITS, UNIT_BITS

_LOWEST = ~0x7C00  # the rank of -inf
_ELEMENT = 3  # cycles from a number to its units, rank and kind


class Reducer(wiring.Component):
    """Computes the largest element, or the sum of the elements, of each word and of those before it in its iteration.

    Args:
        lanes: Numbers in one word.

    Members:
        i: In(16 x lanes). Words of iterations, in order.
        op: In. Code of the add stage, which chooses the result.
        turn: In(`payloads.turn`). Position of the word in its iteration, with `i`.
        o: Out(16). The reduction.

    Timing:
        One word a cycle; the result `latency` cycles later. Never stalls. What it holds is of no use after the last
        word of an iteration, so that reset does nothing.
    """

    def __init__(self, lanes: int):
        self.lanes, self.latency = lanes, timing.reducer(lanes)
        super().__init__({"i": In(data.ArrayLayout(16, lanes)), "op": In(code_bits(Stage.ADD, more=True)),
                          "turn": In(turn(lanes)), "o": Out(16)})

    def elaborate(self, platform):
        m = Module()
        tree = (self.lanes - 1).bit_length()
        sums, used, first = (delay(m, signal, _ELEMENT + tree) for signal in (
            self.op == Operation.V_SUM.code, self.turn.valid, self.turn.first))
        lanes = [self._element(m, Binary16(self.i[lane]), (self.turn.tail != 0) & (lane >= self.turn.tail))
                 for lane in range(self.lanes)]
        units, ranks, kinds = zip(*lanes, strict=True)
        total = self._total(m, _tree(m, units, lambda a, b: a + b), used, first)
        largest = self._largest(m, _tree(m, ranks, lambda a, b: Mux(a > b, a, b)), used, first)
        kind = self._kinds(m, _tree(m, kinds, lambda a, b: a | b), used, first)

        m.submodules.rounder = rounder = Binary16Rounder(TOTAL_BITS, range(UNIT_BITS, UNIT_BITS + 1))
        m.d.comb += [rounder.value.eq(total), rounder.scale.eq(UNIT_BITS)]
        sums, largest, kind = (delay(m, signal, timing.ROUND) for signal in (delay(m, sums, 1), largest, kind))
        nan, above, below = kind
        pattern = Mux(largest < 0, Cat(~largest[:15], 1), largest)[:16]
        total = Mux(above | below, Cat(Const(INFINITY, 15), below), rounder.o)
        bits = Mux(nan | (sums & above & below), NAN, Mux(sums, total, pattern))
        m.d.comb += self.o.eq(delay(m, bits, 1))
        assert self.latency == _ELEMENT + tree + 1 + rounder.latency + 1
        return m

    def _element(self, m, number, absent):
        """An element in units of 2**-24, its rank in the order of numbers, and NaN, +inf, -inf: all `_ELEMENT` later.

        Their cycles prepare the shift, shift, and negate.
        """
        field, digits = significand(number)
        special, minus = number.exponent.all(), number.sign
        nan, infinite = ~absent & special & number.fraction.any(), ~absent & special & ~number.fraction.any()
        magnitude, ordered = number.as_value()[:15], Signal(signed(16))
        m.d.comb += ordered.eq(Mux(absent, _LOWEST, Cat(magnitude ^ minus.replicate(15), minus).as_signed()))
        shift, digits = delay(m, (field - 1)[:5], 1), delay(m, Mux(special | absent, 0, digits), 1)
        magnitude, minus_later = delay(m, (digits << shift)[:ELEMENT_BITS - 1], 1), delay(m, minus, 2)
        unit = Signal(signed(ELEMENT_BITS))
        m.d.comb += unit.eq(Mux(minus_later, -magnitude, magnitude))
        return (delay(m, unit, 1), delay(m, ordered, _ELEMENT),
                delay(m, Cat(nan, infinite & ~minus, infinite & minus), _ELEMENT))

    def _total(self, m, unit, taken, first):
        """The exact sum of the words so far, a cycle later."""
        total = Signal(signed(TOTAL_BITS), reset_less=True)
        with m.If(taken):
            m.d.sync += total.eq(Mux(first, 0, total) + unit)
        return total

    def _largest(self, m, rank, taken, first):
        largest = Signal(signed(16), reset_less=True)
        with m.If(taken & (first | (rank > largest))):
            m.d.sync += largest.eq(rank)
        return largest

    def _kinds(self, m, kinds, taken, first):
        """Whether a NaN, +inf or -inf was among the words so far, a cycle later."""
        seen = Signal(3, reset_less=True)
        with m.If(taken):
            m.d.sync += seen.eq(Mux(first, 0, seen) | kinds)
        return seen


def _tree(m, values, join):
    """All values joined by pairs, with a register behind each level."""
    values = list(values)
    while len(values) > 1:
        pairs = [values[k:k + 2] for k in range(0, len(values), 2)]
        values = [_register(m, reduce(join, pair)) for pair in pairs]
    return values[0]


def _register(m, value):
    register = Signal(Value.cast(value).shape(), reset_less=True)
    m.d.sync += register.eq(value)
    return register
