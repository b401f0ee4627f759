"""Delay lines of control bits, which a reset clears."""

from amaranth import *

__all__ = ["delay_control"]


def delay_control(m: Module, signal, cycles: int):
    """`signal`, delayed by `cycles` cycles. Unlike with `hw.lib.pipeline.delay`, a reset clears the delay line."""
    for _ in range(cycles):
        later = Signal()
        m.d.sync += later.eq(signal)
        signal = later
    return signal
