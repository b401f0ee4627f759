"""Delay lines of the fixed-latency units."""

from amaranth import *

__all__ = ["delay"]


def delay(m: Module, signal, cycles: int):
    """`signal`, delayed by `cycles` cycles. The registers hold data, so a reset does not clear them."""
    if not Shape.cast(signal.shape()).width:
        return signal  # a register without bits has no place in Verilog
    for _ in range(cycles):
        later = Signal(signal.shape(), reset_less=True)
        m.d.sync += later.eq(signal)
        signal = later
    return signal
