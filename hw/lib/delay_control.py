"""Delay lines of bits that make something happen."""

from amaranth import *

__all__ = ["delay_control"]


def delay_control(m: Module, signal, cycles: int):
    """`signal` as it was `cycles` cycles ago, and low after a reset, unlike `hw.lib.pipeline.delay`."""
    for _ in range(cycles):
        later = Signal()
        m.d.sync += later.eq(signal)
        signal = later
    return signal
