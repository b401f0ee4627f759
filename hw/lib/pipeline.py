"""Delay lines of the fixed-latency units."""

from amaranth import *


def delay(m: Module, signal, cycles: int):
    """`signal`, delayed by `cycles` cycles. The registers hold data, so a reset does not clear them."""
    if not Shape.cast(signal.shape()).width:
        return signal  # a register without bits has no place in Verilog
    for _ in range(cycles):
        later = Signal(signal.shape(), reset_less=True)
        m.d.sync += later.eq(signal)
        signal = later
    return signal


def delay_control(m: Module, signal, cycles: int):
    """`signal`, a control bit, delayed by `cycles` cycles. Unlike with `delay`, a reset clears the registers."""
    for _ in range(cycles):
        later = Signal()
        m.d.sync += later.eq(signal)
        signal = later
    return signal
