"""The multiply stage of a multi-function unit: golden.lib.float16.mul in hardware."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.float16 import INFINITY, NAN, Binary16, leading_zeros, rounded, shift_right, significand
from concord.hw.lib.pipeline import delay
from concord.spec.isa.operations import Operation, Stage, code_bits, implemented
from concord.spec.machine import timing


def _product(a, b):
    huge_a, huge_b = a.exponent.all(), b.exponent.all()
    nan = huge_a & a.fraction.any() | huge_b & b.fraction.any()
    nan |= huge_a & ~b.as_value()[:15].any() | huge_b & ~a.as_value()[:15].any()
    return Mux(nan, NAN, Cat(Const(INFINITY, 15), a.sign ^ b.sign)), huge_a | huge_b


#: Of each operation the result that is no product of finite numbers, and whether there is one, from Binary16 a and b.
EXCEPTIONS = implemented({Operation.VV_MUL: _product}, Stage.MUL)


class FloatMultiplier(wiring.Component):
    """Computes a * b in binary16, rounded once to nearest even, or passes a unchanged.

    Members:
        a: In(16). The chain's value.
        b: In(16). The operand; a bypass ignores it.
        op: In. Code of the multiply stage.
        o: Out(16). Bits of the result.

    Timing:
        One result a cycle, `latency` cycles later. Never stalls; reset does nothing.
    """

    codes = (Stage.MUL,)
    latency = timing.MULTIPLY

    def __init__(self):
        super().__init__({"a": In(16), "b": In(16), "op": In(code_bits(Stage.MUL)), "o": Out(16)})

    def elaborate(self, platform):
        m = Module()
        a, b = Binary16(self.a), Binary16(self.b)
        special, keep = (delay(m, signal, 2) for signal in _exceptions(m, a, b, self.op))
        sign = delay(m, a.sign ^ b.sign, 2)

        (exponent_a, left), (exponent_b, right) = significand(a), significand(b)
        product = delay(m, left * right, 1)
        exponents = delay(m, exponent_a + exponent_b, 1)
        # The product starts at bit 21 or 20 minus the leading zeros of a subnormal. Two subnormals round to zero,
        # however their zeros are counted, and a zero counts as so many that it meets no exponent field but 0.
        count, none = leading_zeros(Mux(a.exponent.any(), b.fraction, a.fraction))
        normal = a.exponent.any() & b.exponent.any()
        zeros = delay(m, Mux(normal, 0, Cat(count, none) + 1), 1)

        field = exponents - 16 - zeros
        subnormal = field < 0
        shifted, lost = shift_right(Cat(Const(0, 1), product), Mux(subnormal, 26 - exponents, 10 - zeros)[:5])
        value = delay(m, Cat(lost, shifted[:13]), 1)
        field = delay(m, Mux(subnormal, 0, field)[:6], 1)

        carry = value[13]
        bits = rounded(field[:5], Mux(carry, Cat(value[:2].any(), value[2:]), value[:13]), carry)
        infinite = (field >= 30) | ((field == 29) & carry)
        total = Cat(Mux(infinite, INFINITY, bits), sign)
        m.d.comb += self.o.eq(delay(m, Mux(keep, special, total), 1))
        return m


def _exceptions(m, a, b, op):
    """The result that needs no product of finite numbers, and whether there is one; a bypass gives `a` itself."""
    special, keep = Signal(16), Signal()
    with m.Switch(op):
        for operation, function in EXCEPTIONS.items():
            with m.Case(operation.code):
                m.d.comb += Cat(special, keep).eq(Cat(*function(a, b)))
        with m.Default():
            m.d.comb += [special.eq(a), keep.eq(1)]
    return special, keep
