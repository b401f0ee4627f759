"""The activation stage of a multi-function unit: relu, sigmoid and tanh of golden.mfu.activation in hardware."""

from amaranth import *
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.float16 import NAN, Binary16, rounded
from concord.hw.lib.pipeline import delay
from concord.spec.isa.operations import BYPASS, Operation, Stage, code_bits, implemented
from concord.spec.machine import timing
from concord.spec.numbers import activation as curves
from concord.spec.numbers.activation import Curve

Segment = data.StructLayout({
    "base": curves.BASE_BITS, "slope": signed(curves.SLOPE_BITS), "exponent": curves.EXPONENT_BITS})

#: The result of an operation: `direct`; where `tabled` is high, the value that the table has for `curve`, with `sign`.
Result = data.StructLayout({"direct": 16, "tabled": 1, "curve": range(len(Curve)), "sign": 1})


def _relu(a):
    return {"direct": Mux(a.sign, 0, a.as_value())}


def _sigmoid(a):
    return {"tabled": 1, "curve": Mux(a.sign, Curve.FALLING.value, Curve.RISING.value)}


def _tanh(a):
    return {"direct": a.as_value(), "tabled": a.exponent >= curves.TANH_LINEAR + 15, "curve": Curve.TANH.value,
            "sign": a.sign}


#: The fields of each operation's Result that are not 0, from a Binary16 that is no NaN.
FUNCTIONS = implemented({
    Operation.V_RELU: _relu,
    Operation.V_SIGM: _sigmoid,
    Operation.V_TANH: _tanh,
}, Stage.ACT)


class Activation(wiring.Component):
    """Computes relu, sigmoid or tanh of a binary16 number with the segments of
    spec.numbers.activation, or passes it unchanged.

    Members:
        a: In(16). Bits of the number.
        op: In. Code of the activation stage.
        o: Out(16). Bits of the result.

    Timing:
        One result a cycle, `latency` cycles later. Never stalls; reset does nothing.
    """

    codes = (Stage.ACT,)
    latency = timing.ACTIVATION

    def __init__(self):
        super().__init__({"a": In(16), "op": In(code_bits(Stage.ACT)), "o": Out(16)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = rows = memory.Memory(
            shape=Segment, depth=curves.TABLE_DEPTH, init=[segment._asdict() for segment in curves.table()])
        row = rows.read_port()

        a = Binary16(self.a)
        result = _result(m, a, self.op)
        first, k = _block(m, a, result.curve)
        # The highest k bits of the fraction are shifted out and choose the segment; the other bits are t.
        shifted = a.fraction << k
        m.d.comb += row.addr.eq(first | shifted[len(a.fraction):])
        t = delay(m, shifted[:len(a.fraction)], 1)

        rise = delay(m, (row.data.slope * t)[len(t):].as_signed(), 1)
        value = delay(m, (delay(m, row.data.base, 1) + rise)[:curves.BASE_BITS], 1)
        exponent = delay(m, row.data.exponent, 2)

        # In the lower half of its range, a normal value has one more fraction bit.
        finer = ~value[-1] & exponent.any()
        field = (exponent - finer)[:curves.EXPONENT_BITS]
        value = Mux(finer, Cat(Const(0, 1), value[:-1]), value)
        bits = rounded(Cat(field, Const(0, 1)), Cat(value[:-12].any(), value[-12:]))

        direct, tabled, sign = (delay(m, signal, 3) for signal in (result.direct, result.tabled, result.sign))
        m.d.comb += self.o.eq(delay(m, Mux(tabled, Cat(bits, sign), direct), 1))
        return m


def _result(m, a, op):
    """The Result of the operation that `op` names; a bypass gives `a` itself."""
    result = Signal(Result)
    nan = a.exponent.all() & a.fraction.any()
    with m.If(op == BYPASS):
        m.d.comb += result.direct.eq(a)
    with m.Elif(nan):
        m.d.comb += result.direct.eq(NAN)
    with m.Else(), m.Switch(op):
        for operation, function in FUNCTIONS.items():
            with m.Case(operation.code):
                m.d.comb += [result[name].eq(value) for name, value in function(a).items()]
    return result


def _block(m, a, curve):
    """First row of the octave of `a`, and log2 of its number of rows."""
    first, k = Signal(range(curves.TABLE_DEPTH)), Signal(range(len(a.fraction)))
    with m.Switch(Cat(a.exponent, curve)):
        for each in Curve:
            for field, block in curves.blocks(each).items():
                with m.Case(field | each.value << len(a.exponent)):
                    m.d.comb += [first.eq(block.first), k.eq(block.k)]
    return first, k
