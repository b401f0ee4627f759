"""The add stage of a multi-function unit: add, sub and maximum of golden.lib.float16 in hardware."""

from typing import NamedTuple

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import sum_or_difference
from concord.hw.lib.float16 import (
    NAN,
    Binary16,
    joined_zeros,
    leading_zeros,
    rounded,
    shift_right,
    significand,
    smaller,
)
from concord.hw.lib.pipeline import in_steps
from concord.spec.isa.operations import BYPASS, Operation, Stage, code_bits, implemented
from concord.spec.machine import timing

_GROUP = 4  #: Bits of a sum whose leading zeros one step counts; the next step joins the counts.


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

    Args:
        registers: The attribute `mfu_registers` of the machine.

    Members:
        a: In(16). The chain's value.
        b: In(16). The operand; a bypass ignores it.
        op: In. Code of the add stage.
        o: Out(16). Bits of the result.

    Timing:
        One result a cycle, `latency` cycles later. Never stalls; reset does nothing.
    """

    codes = (Stage.ADD,)

    def __init__(self, registers: int = 0):
        self.latency = timing.adder(registers)
        super().__init__({"a": In(16), "b": In(16), "op": In(code_bits(Stage.ADD)), "o": Out(16)})

    def elaborate(self, platform):
        m = Module()
        cuts = CUTS[self.latency]
        assert self.latency == len(STEPS.keys() & cuts)
        values = in_steps({"a": self.a, "b": self.b, "op": self.op}, STEPS, cuts, m, platform)
        m.d.comb += self.o.eq(values["o"])
        return m


def _order(v, m, platform):
    """Put one number in front, find how far the exponent of the other lies below, and whether the signs differ.

    In front is the larger magnitude for a sum, the larger value for a maximum, a in a bypass. Results without
    arithmetic, infinities and NaN among them, are that number: `keep`.
    """
    bypass = v["op"] == BYPASS
    negate_a, negate_b, maximum = (v["op"].matches(
        *(operation.code for operation, use in USES.items() if getattr(use, name))) for name in Use._fields)
    a, b = Binary16(v["a"] ^ negate_a << 15), Binary16(v["b"] ^ negate_b << 15)
    differ, swap = smaller(a, b, by_value=maximum, unless=bypass)
    huge_a, huge_b = a.exponent.all(), b.exponent.all()
    nan = huge_a & a.fraction.any() | huge_b & b.fraction.any() | huge_a & huge_b & differ & ~maximum

    (exponent_a, bits_a), (exponent_b, bits_b) = significand(a), significand(b)
    # Both differences are computed while the numbers are compared.
    above, below = (exponent_a - exponent_b)[:5], (exponent_b - exponent_a)[:5]
    return {"front": Mux(swap, b.as_value(), a.as_value()), "small": Mux(swap, bits_a, bits_b),
            "distance": Mux(swap, below, above), "differ": differ, "nan": nan & ~bypass,
            "keep": bypass | maximum | huge_a | huge_b}


def _align(v, m, platform):
    """Shift the significand behind to the exponent of the one in front, with two more bits and a sticky bit."""
    exponent, large = significand(Binary16(v["front"]))
    aligned, lost = shift_right(Cat(Const(0, 2), v["small"]), v["distance"])
    # For subnormals, a one at the position of the smallest exponent field ends the count of leading zeros.
    limit = Const(1 << 14, 15) >> exponent
    return {"exponent": exponent, "large": large, "aligned": Cat(lost, aligned), "limit": limit,
            "front": Mux(v["nan"], NAN, v["front"])}


def _add(v, m, platform):
    """Front plus or minus back: a carry, 11 bits of significand, two more bits and a sticky bit."""
    a, b = Cat(Const(0, 3), v["large"], Const(0, 1)), Cat(v["aligned"], Const(0, 1))
    return {"total": sum_or_difference(m, platform, a, b, v["differ"])}


def _count(v, m, platform):
    """Count the leading zeros of each group of bits, from the highest group down."""
    marked = Cat(Const(0, 1), v["total"] | v["limit"])
    groups = [leading_zeros(marked[k:k + _GROUP]) for k in reversed(range(0, len(marked), _GROUP))]
    return {"zeros": Cat(Cat(*group) for group in groups)}


def _normalize(v, m, platform):
    """Move the highest one of the sum to the hidden bit: arguments of `rounded`, and whether there is none."""
    size = (_GROUP - 1).bit_length()
    groups = [(group[:size], group[size]) for group in
              (v["zeros"].word_select(k, size + 1) for k in range(len(v["zeros"]) // (size + 1)))]
    count, _ = joined_zeros(joined_zeros(*groups[:2]), joined_zeros(*groups[2:]))
    zero = ~v["total"].any()
    value = (v["total"] << count)[:15]
    return {"zero": zero, "field": Mux(zero, 0, (v["exponent"] - count)[:5]), "value": Cat(value[:3].any(), value[3:])}


def _round(v, m, platform):
    """Round the sum, or keep the number in front."""
    front, infinite = v["front"], v["field"] == 30
    bits = rounded(v["field"], v["value"])
    total = Cat(bits[:10] & ~infinite.replicate(10), bits[10:], front[15] & ~(v["zero"] & v["differ"]))
    return {"o": Mux(v["keep"], front, total)}


STEPS = {"order": _order, "align": _align, "add": _add, "count": _count, "normalize": _normalize, "round": _round}
#: Steps behind which registers lie, by their number.
CUTS = {3: ("order", "count", "round"), 5: ("order", "align", "count", "normalize", "round")}
