"""The multiply stage of a multi-function unit: golden.lib.float16.mul in hardware."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.float16 import INFINITY, NAN, Binary16, leading_zeros, rounded, shift_right, significand
from concord.hw.lib.pipeline import in_steps
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

    Args:
        registers: The attribute `mfu_registers` of the machine.

    Members:
        a: In(16). The chain's value.
        b: In(16). The operand; a bypass ignores it.
        op: In. Code of the multiply stage.
        o: Out(16). Bits of the result.

    Timing:
        One result a cycle, `latency` cycles later. Never stalls; reset does nothing.
    """

    codes = (Stage.MUL,)

    def __init__(self, registers: int = 0):
        self.latency = timing.multiplier(registers)
        super().__init__({"a": In(16), "b": In(16), "op": In(code_bits(Stage.MUL)), "o": Out(16)})

    def elaborate(self, platform):
        m = Module()
        cuts = CUTS[self.latency]
        assert self.latency == len(STEPS.keys() & cuts)
        values = in_steps({"a": self.a, "b": self.b, "op": self.op}, STEPS, cuts, m, platform)
        m.d.comb += self.o.eq(values["o"])
        return m


def _unpack(v, m, platform):
    """Significands, the sum of the exponents less 16, and results that are no product of finite numbers."""
    a, b = Binary16(v["a"]), Binary16(v["b"])
    special, keep = _exceptions(m, a, b, v["op"])
    (exponent_a, left), (exponent_b, right) = significand(a), significand(b)
    # The product starts at bit 21 or 20 minus the leading zeros of a subnormal. Two subnormals round to zero, however
    # their zeros are counted, and a zero counts as so many that it meets no exponent field but 0.
    normal_a, normal_b = left[-1], right[-1]
    zeros = [Cat(*leading_zeros(number.fraction)) for number in (a, b)]
    # The hidden bit is a zero, too: -(zeros + 1) is ~zeros.
    minus_zeros = Mux(normal_a & normal_b, 0, Cat(~Mux(normal_a, zeros[1], zeros[0]), 1)).as_signed()
    return {"left": left, "right": right, "exponents": (exponent_a + exponent_b - 16)[:7].as_signed(),
            "minus_zeros": minus_zeros, "sign": a.sign ^ b.sign, "special": special, "keep": keep}


def _multiply(v, m, platform):
    """The product, as a hardware multiplier takes most of a cycle; beside it, how far it moves right, and its field."""
    field = v["exponents"] + v["minus_zeros"]
    subnormal = field < 0
    return {"product": v["left"] * v["right"], "field": Mux(subnormal, 0, field)[:6],
            "places": Mux(subnormal, 10 - v["exponents"], 10 + v["minus_zeros"])[:5]}


def _shift(v, m, platform):
    """The significand with a carry above it, a half bit and a sticky bit."""
    shifted, lost = shift_right(Cat(Const(0, 1), v["product"]), v["places"])
    return {"value": Cat(lost, shifted[:13])}


def _round(v, m, platform):
    """Round the product, or keep what is none."""
    field, value, carry = v["field"], v["value"], v["value"][13]
    bits = rounded(field[:5], Mux(carry, Cat(value[:2].any(), value[2:]), value[:13]), carry)
    infinite = (field >= 30) | ((field == 29) & carry)
    return {"o": Mux(v["keep"], v["special"], Cat(Mux(infinite, INFINITY, bits), v["sign"]))}


STEPS = {"unpack": _unpack, "multiply": _multiply, "shift": _shift, "round": _round}
#: Steps behind which registers lie, by their number.
CUTS = {3: ("multiply", "shift", "round"), 4: ("unpack", "multiply", "shift", "round")}


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
