"""The activation stage of a multi-function unit: relu and golden.mfu.activation in hardware."""

from amaranth import *
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.float16 import INFINITY, NAN, Binary16, leading_zeros, rounded
from concord.hw.lib.pipeline import Registered, follow, in_steps
from concord.spec.isa.operations import BYPASS, Operation, Stage, code_bits, implemented, operations
from concord.spec.machine import timing
from concord.spec.numbers import activation as curves
from concord.spec.numbers.activation import Curve


def _relu(a):
    return {"direct": Mux(a.sign, 0, a.as_value())}


def _sigmoid(a):
    return {"tabled": 1, "curve": Mux(a.sign, Curve.FALLING.value, Curve.RISING.value)}


def _tanh(a):
    return {"direct": a.as_value(), "tabled": a.exponent >= curves.TANH_LINEAR + 15, "curve": Curve.TANH.value,
            "sign": a.sign}


def _exp(a):
    return {"direct": INFINITY, "tabled": a.sign | (a.as_value() < curves.EXP_INFINITE),
            "curve": Mux(a.sign, Curve.EXP_FALLING.value, Curve.EXP_RISING.value)}


def _reciprocal(a):
    infinite = a.exponent.all()
    return {"direct": Cat(Mux(infinite, 0, Const(INFINITY, 15)), a.sign), "curve": Curve.RECIPROCAL.value,
            "tabled": ~infinite & (a.as_value()[:15] > curves.RECIPROCAL_INFINITE), "sign": a.sign}


def _rsqrt(a):
    return _root(a, Curve.RSQRT, Cat(Mux(a.exponent.all(), 0, Const(INFINITY, 15)), a.sign))


def _sqrt(a):
    return _root(a, Curve.SQRT, a.as_value())


def _root(a, curve, at_ends):
    """The result of a root, or of its reciprocal, from what it is at zeros and infinity."""
    zero = ~a.as_value()[:15].any()
    return {"direct": Mux(a.sign & ~zero, NAN, at_ends), "tabled": ~(a.sign | zero | a.exponent.all()),
            "curve": curve.value}


#: The fields of each operation's Result that are not 0, from a Binary16 that is no NaN.
FUNCTIONS = implemented({
    Operation.V_RELU: _relu,
    Operation.V_SIGM: _sigmoid,
    Operation.V_TANH: _tanh,
    Operation.V_EXP: _exp,
    Operation.V_RECIP: _reciprocal,
    Operation.V_RSQRT: _rsqrt,
    Operation.V_SQRT: _sqrt,
}, Stage.ACT)


def segment(more: bool) -> data.StructLayout:
    """A row of the table; see `spec.numbers.activation`."""
    return data.StructLayout({
        "base": curves.BASE_BITS, "slope": signed(curves.SLOPE_BITS), "exponent": curves.EXPONENT_BITS[more]})


class Activation(wiring.Component):
    """Computes a function of a binary16 number with the segments of spec.numbers.activation, or passes it unchanged.

    Args:
        more:      Whether the stage has the functions of machines with `more_functions`.
        registers: The attribute `mfu_registers` of the machine.

    Members:
        a: In(16). Bits of the number.
        op: In. Code of the activation stage.
        o: Out(16). Bits of the result.

    Timing:
        One result a cycle, `latency` cycles later. Never stalls; reset does nothing.
    """

    codes = (Stage.ACT,)

    def __init__(self, more: bool = False, registers: int = 0):
        self.more, self.latency = more, timing.activation(registers, more=more)
        self.curves, self.table = tuple(Curve) if more else curves.BASIC, curves.table(more)
        self.depth = max(1 << (len(self.table) - 1).bit_length(), curves.TABLE_DEPTH)  # without choice between blocks
        super().__init__({"a": In(16), "op": In(code_bits(Stage.ACT, more=more)), "o": Out(16)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = rows = memory.Memory(
            shape=segment(self.more), depth=self.depth, init=[each._asdict() for each in self.table])
        row = rows.read_port()

        cuts = CUTS[self.latency]
        before = {"choose": self._choose, "find": self._find, "split": self._split}
        assert self.latency == len((before | AFTER).keys() & cuts) + 1
        values = in_steps({"a": self.a, "op": self.op}, before, cuts, m, platform)
        m.d.comb += row.addr.eq(values["address"])
        read = {name: row.data[name] for name in ("base", "slope", "exponent")}
        values = follow(Registered(m, values), read)  # the memory has a register of its own
        m.d.comb += self.o.eq(in_steps(values, AFTER, cuts, m, platform)["o"])
        return m

    def _choose(self, v, m, platform):
        """The result of the operation that `op` names, and the number's field; a bypass gives `a` itself.

        The result is `direct`; where `tabled` is high, it is the value that the table has for `curve`, with `sign`. All
        this is of no use for a NaN, which `nan` says.
        """
        a = Binary16(v["a"])
        result = Signal(data.StructLayout({"direct": 16, "tabled": 1, "curve": range(len(self.curves)), "sign": 1}))
        with m.Switch(v["op"]):
            for operation in operations(Stage.ACT, more=self.more):
                with m.Case(operation.code):
                    m.d.comb += [result[name].eq(value) for name, value in FUNCTIONS[operation](a).items()]
            with m.Default():
                m.d.comb += result.direct.eq(a)
        nan = (v["op"] != BYPASS) & a.exponent.all() & a.fraction.any()
        found = {name: result[name] for name in result.shape().members} | {"nan": nan}
        if not self.more:
            return found | {"field": a.exponent, "fraction": a.fraction}
        zeros, _ = leading_zeros(a.fraction)
        normal = a.exponent.any()
        return found | {"zeros": zeros, "normal": normal, "field": Cat(Mux(normal, a.exponent, zeros), normal)}

    def _find(self, v, m, platform):
        """First row of the octave of a number, log2 of its number of rows, and the offset of its exponents."""
        made = {"direct": Mux(v["nan"], NAN, v["direct"]), "tabled": v["tabled"] & ~v["nan"]}
        if self.more:
            made["fraction"] = _normalised(Binary16(v["a"]).fraction, v["normal"], v["zeros"])
        first, k, offset = Signal(range(self.depth)), Signal(range(curves.FRACTION_BITS)), Signal(signed(6))
        curve, field = v["curve"], v["field"]  # read here, as their registers must not depend on a switch
        with m.Switch(curve):
            for each in self.curves:
                with m.Case(each.value), m.Switch(field):
                    for number, block in curves.blocks(each).items():
                        if number >= 0 or self.more:
                            with m.Case(_code(number) if self.more else number):
                                m.d.comb += [first.eq(block.first), k.eq(block.k), offset.eq(block.offset)]
        return made | {"first": first, "k": k, "offset": offset}

    def _split(self, v, m, platform):
        """The highest k bits of the fraction are shifted out and choose the segment; the other bits are t."""
        shifted, bits = v["fraction"] << v["k"], len(v["fraction"])
        return {"address": v["first"] | shifted[bits:], "t": shifted[:bits]}


def _code(field: int) -> int:
    """How `_choose` codes a field f of `spec.numbers.activation`: zeros of a fraction, or an exponent below a one."""
    return 32 + field if field > 0 else -field


def _normalised(fraction, normal, zeros):
    """The fraction, moved until its highest one is the hidden bit where the number is subnormal."""
    return Mux(normal, fraction, (Cat(Const(0, 1), fraction) << zeros)[:len(fraction)])


def _wait(v, m, platform):
    """Nothing: the output of a block RAM takes most of a cycle, and so does the way from there to a multiplier."""
    return {}


def _multiply(v, m, platform):
    """The product, as a hardware multiplier takes most of a cycle, and beside it the exponent."""
    t, exponent = v["t"], v["exponent"]
    return {"rise": (v["slope"] * t)[len(t):].as_signed(), "exponent": (exponent + v["offset"])[:len(exponent)]}


def _add(v, m, platform):
    """The value of the segment. In the lower half of its range, a normal value has one more fraction bit."""
    exponent = v["exponent"]
    value = (v["base"] + v["rise"])[:curves.BASE_BITS]
    finer = ~value[-1] & exponent.any()
    value = Mux(finer, Cat(Const(0, 1), value[:-1]), value)
    field = (exponent - finer)[:len(exponent)]
    return {"field": Cat(field, Const(0, 5 - len(field))), "value": Cat(value[:-12].any(), value[-12:])}


def _round(v, m, platform):
    """Round the value, or keep what is none."""
    bits = rounded(v["field"], v["value"])
    return {"o": Mux(v["tabled"], Cat(bits, v["sign"]), v["direct"])}


#: The steps behind the memory.
AFTER = {"read": _wait, "bring": _wait, "multiply": _multiply, "add": _add, "round": _round}
#: Steps behind which registers lie, by their number and that of the memory.
CUTS = {
    3: ("multiply", "round"),
    6: ("find", "read", "multiply", "add", "round"),
    7: ("find", "read", "bring", "multiply", "add", "round"),
    8: ("choose", "find", "read", "bring", "multiply", "add", "round"),
}
