"""The add stage of a multi-function unit: add, sub and maximum of golden.lib.float16 in hardware."""

from typing import NamedTuple

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import sum_or_difference
from concord.hw.lib.float16 import NAN, Binary16, leading_zeros, rounded, shift_right, significand, smaller
from concord.hw.lib.pipeline import delay
from concord.spec.isa.operations import BYPASS, Operation, Stage, code_bits, implemented
from concord.spec.machine import timing


class Use(NamedTuple):
    """How an operation uses the adder.

    Attributes:
        negate_a: Whether the sign of a is inverted first.
        negate_b: Whether the sign of b is inverted first.
        maximum:  Whether the result is the larger of both instead of their sum.
    """

    negate_a: bool = False
    negate_b: bool = False
    maximum: bool = False


USES = implemented({
    Operation.VV_ADD: Use(),
    Operation.VV_A_SUB_B: Use(negate_b=True),
    Operation.VV_B_SUB_A: Use(negate_a=True),
    Operation.VV_MAX: Use(maximum=True),
}, Stage.ADD)


class FloatAdder(wiring.Component):
    """Computes a + b, a - b, b - a or max(a, b) in binary16, rounded once to nearest even, or passes a unchanged.

    Members:
        a: In(16). The chain's value.
        b: In(16). The operand; a bypass ignores it.
        op: In. Code of the add stage.
        o: Out(16). Bits of the result.

    Timing:
        One result a cycle, `latency` cycles later. Never stalls; reset does nothing.
    """

    codes = (Stage.ADD,)
    latency = timing.ADD

    def __init__(self):
        super().__init__({"a": In(16), "b": In(16), "op": In(code_bits(Stage.ADD)), "o": Out(16)})

    def elaborate(self, platform):
        m = Module()
        # Every operation first puts one of its numbers in front: the larger magnitude for a sum, the larger value for a
        # maximum, a in a bypass. Results without arithmetic, infinities and NaN among them, are that number: `keep`.
        front, back, subtract, keep = (delay(m, signal, 1) for signal in _order(self.a, self.b, self.op))
        added = _add(m, platform, Binary16(front), Binary16(back), subtract)
        exponent, total = (delay(m, signal, 1) for signal in added)
        field, value, zero = (delay(m, signal, 1) for signal in _normalize(exponent, total))

        front, keep, subtract = (delay(m, signal, 2) for signal in (front, keep, subtract))
        bits, infinite = rounded(field, value), field == 30
        total = Cat(bits[:10] & ~infinite.replicate(10), bits[10:], front[15] & ~(zero & subtract))
        m.d.comb += self.o.eq(delay(m, Mux(keep, front, total), 1))
        return m


def _order(a, b, op):
    """Front and back with the signs that `op` gives them, whether the signs differ, and whether front is the result."""
    bypass = op == BYPASS
    negate_a, negate_b, maximum = (
        op.matches(*(operation.code for operation, use in USES.items() if getattr(use, name))) for name in Use._fields)
    a, b = Binary16(a ^ negate_a << 15), Binary16(b ^ negate_b << 15)
    differ, behind = smaller(a, b, by_value=maximum)
    huge_a, huge_b = a.exponent.all(), b.exponent.all()
    nan = huge_a & a.fraction.any() | huge_b & b.fraction.any() | huge_a & huge_b & differ & ~maximum

    swap = behind & ~bypass
    front = Mux(nan & ~bypass, NAN, Mux(swap, b.as_value(), a.as_value()))
    return front, Mux(swap, a.as_value(), b.as_value()), differ, bypass | maximum | huge_a | huge_b


def _add(m, platform, front, back, subtract):
    """Exponent field, and front plus or minus back: a carry, 11 bits of significand, two more bits and a sticky bit."""
    exponent, large = significand(front)
    lower, small = significand(back)
    aligned, lost = shift_right(Cat(Const(0, 2), small), (exponent - lower)[:5])
    a, b = Cat(Const(0, 3), large, Const(0, 1)), Cat(lost, aligned, Const(0, 1))
    return exponent, sum_or_difference(m, platform, a, b, subtract)


def _normalize(exponent, total):
    """Arguments of `rounded`, and whether the sum is zero."""
    zero = ~total.any()
    # For subnormals, a one at the place of the smallest exponent field ends the count.
    limit = Const(1 << 14, 15) >> exponent
    count, _ = leading_zeros(total | limit)
    value = (total << count)[:15]
    return Mux(zero, 0, (exponent - count)[:5]), Cat(value[:3].any(), value[3:]), zero
