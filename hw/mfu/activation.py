"""The activation stage of a multi-function unit: the gates of relu, sigmoid and tanh in golden.mfu.activation."""

from amaranth import *
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.float16 import NAN, Binary16, rounded
from concord.hw.lib.pipeline import delay
from concord.spec.activation import (
    BASE_BITS,
    EXPONENT_BITS,
    SLOPE_BITS,
    TABLE_DEPTH,
    TANH_LINEAR,
    Curve,
    blocks,
    table,
)
from concord.spec.mfu import ACT_OP_BITS, ActOp

__all__ = ["Activation"]

Segment = data.StructLayout({"base": BASE_BITS, "slope": signed(SLOPE_BITS), "exponent": EXPONENT_BITS})


class Activation(wiring.Component):
    """relu, sigmoid or tanh of a binary16 number, by the segments of spec.activation; or the number, bit for bit.

    Members:
        a: In(16).
        op: In(ActOp).
        o: Out(16).

    Timing:
        One result a cycle, `latency` cycles later. Never stalls; reset does nothing.
    """

    latency = 4

    def __init__(self):
        super().__init__({"a": In(16), "op": In(ACT_OP_BITS), "o": Out(16)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = rows = memory.Memory(
            shape=Segment, depth=TABLE_DEPTH, init=[segment._asdict() for segment in table()])
        row = rows.read_port()

        a = Binary16(self.a)
        first, k = _block(m, a, self.op)
        # The leading k bits of the fraction leave at the top and choose the segment; what is left is t.
        shifted = a.fraction << k
        m.d.comb += row.addr.eq(first | shifted[len(a.fraction):])
        t = delay(m, shifted[:len(a.fraction)], 1)

        rise = delay(m, (row.data.slope * t)[len(t):].as_signed(), 1)
        value = delay(m, (delay(m, row.data.base, 1) + rise)[:BASE_BITS], 1)
        exponent = delay(m, row.data.exponent, 2)

        # Below the top half of its range a normal value has one place more.
        finer = ~value[-1] & exponent.any()
        field = (exponent - finer)[:EXPONENT_BITS]
        value = Mux(finer, Cat(Const(0, 1), value[:-1]), value)
        bits = rounded(Cat(field, Const(0, 1)), Cat(value[:-12].any(), value[-12:]))

        direct, keep, sign = (delay(m, signal, 3) for signal in _direct(a, self.op))
        m.d.comb += self.o.eq(delay(m, Mux(keep, direct, Cat(bits, sign)), 1))
        return m


def _block(m, a, op):
    """First row and log2 of the number of rows of the octave of `a`."""
    first, k = Signal(range(TABLE_DEPTH)), Signal(range(len(a.fraction)))
    curve = Mux(op == ActOp.TANH, Curve.TANH.value, Mux(a.sign, Curve.FALLING.value, Curve.RISING.value))
    with m.Switch(Cat(a.exponent, curve)):
        for each in Curve:
            for field, block in blocks(each).items():
                with m.Case(field | each.value << len(a.exponent)):
                    m.d.comb += [first.eq(block.first), k.eq(block.k)]
    return first, k


def _direct(a, op):
    """The result that takes no table, whether this is one, and otherwise its sign."""
    nan = a.exponent.all() & a.fraction.any()
    linear = (op == ActOp.TANH) & (a.exponent < TANH_LINEAR + 15)
    negative = (op == ActOp.RELU) & a.sign
    direct = Mux(nan & (op != ActOp.BYPASS), NAN, Mux(negative, 0, a.as_value()))
    return direct, nan | linear | (op == ActOp.BYPASS) | (op == ActOp.RELU), a.sign & (op == ActOp.TANH)
