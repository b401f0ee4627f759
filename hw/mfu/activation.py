"""The activation stage of a multi-function unit: relu and golden.mfu.activation in hardware."""

from amaranth import *
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.float16 import INFINITY, NAN, Binary16, leading_zeros, rounded
from concord.hw.lib.pipeline import delay
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
        more: Whether the stage has the functions of machines with `more_functions`.

    Members:
        a: In(16). Bits of the number.
        op: In. Code of the activation stage.
        o: Out(16). Bits of the result.

    Timing:
        One result a cycle, `latency` cycles later. Never stalls; reset does nothing.
    """

    codes = (Stage.ACT,)
    latency = timing.ACTIVATION

    def __init__(self, more: bool = False):
        self.more = more
        super().__init__({"a": In(16), "op": In(code_bits(Stage.ACT, more=more)), "o": Out(16)})

    def elaborate(self, platform):
        m = Module()
        segments = curves.table(self.more)
        depth = max(len(segments), curves.TABLE_DEPTH)
        m.submodules.table = rows = memory.Memory(
            shape=segment(self.more), depth=depth, init=[each._asdict() for each in segments])
        row = rows.read_port()

        a = Binary16(self.a)
        result = self._result(m, a)
        field, fraction = _normalised(a) if self.more else (a.exponent, a.fraction)
        first, k, offset = self._block(m, field, result.curve, depth)
        # The highest k bits of the fraction are shifted out and choose the segment; the other bits are t.
        shifted = fraction << k
        m.d.comb += row.addr.eq(first | shifted[len(fraction):])
        t = delay(m, shifted[:len(fraction)], 1)

        rise = delay(m, (row.data.slope * t)[len(t):].as_signed(), 1)
        value = delay(m, (delay(m, row.data.base, 1) + rise)[:curves.BASE_BITS], 1)
        exponent = delay(m, row.data.exponent, 2)
        if self.more:
            exponent = delay(m, (delay(m, row.data.exponent, 1) + delay(m, offset, 2))[:len(exponent)], 1)

        # In the lower half of its range, a normal value has one more fraction bit.
        finer = ~value[-1] & exponent.any()
        field = (exponent - finer)[:len(exponent)]
        value = Mux(finer, Cat(Const(0, 1), value[:-1]), value)
        bits = rounded(Cat(field, Const(0, 5 - len(field))), Cat(value[:-12].any(), value[-12:]))

        direct, tabled, sign = (delay(m, signal, 3) for signal in (result.direct, result.tabled, result.sign))
        m.d.comb += self.o.eq(delay(m, Mux(tabled, Cat(bits, sign), direct), 1))
        return m

    def _result(self, m, a):
        """The result of the operation that `op` names; a bypass gives `a` itself.

        It is `direct`; where `tabled` is high, it is the value that the table has for `curve`, with `sign`.
        """
        result = Signal(data.StructLayout({
            "direct": 16, "tabled": 1, "curve": range(len(Curve if self.more else curves.BASIC)), "sign": 1}))
        nan = a.exponent.all() & a.fraction.any()
        with m.If(self.op == BYPASS):
            m.d.comb += result.direct.eq(a)
        with m.Elif(nan):
            m.d.comb += result.direct.eq(NAN)
        with m.Else(), m.Switch(self.op):
            for operation in operations(Stage.ACT, more=self.more):
                with m.Case(operation.code):
                    m.d.comb += [result[name].eq(value) for name, value in FUNCTIONS[operation](a).items()]
        return result

    def _block(self, m, field, curve, depth):
        """First row of the octave of a number, log2 of its number of rows, and the offset of its exponents."""
        first, k = Signal(range(depth)), Signal(range(curves.FRACTION_BITS))
        offset = Signal(signed(6))
        with m.Switch(Cat(field, curve)):
            for each in Curve if self.more else curves.BASIC:
                for number, block in curves.blocks(each).items():
                    if number >= 0 or self.more:
                        with m.Case(number % (1 << len(field)) | each.value << len(field)):
                            m.d.comb += [first.eq(block.first), k.eq(block.k)]
                            if block.offset:
                                m.d.comb += offset.eq(block.offset)
        return first, k, offset


def _normalised(a):
    """The field f of `spec.numbers.activation`, in two's complement, and the fraction of a normal number."""
    count, _ = leading_zeros(a.fraction)
    normal = a.exponent.any()
    return Mux(normal, a.exponent, -count)[:6], Mux(normal, a.fraction, (a.fraction << count + 1)[:len(a.fraction)])
