"""Remainders and quotients by constants, for all values of a width."""

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator
from concord.hw.lib.arithmetic import low_high


@pytest.mark.parametrize("count", [1, 2, 8, 3, 5, 6, 7, 11, 100])
@pytest.mark.parametrize("width", [7, 10])
def test_all_values(count, width):
    m, value = Module(), Signal(width)
    low, high = low_high(value, count)
    found = Signal(len(low)), Signal(len(high))
    m.d.comb += [signal.eq(part) for signal, part in zip(found, (low, high), strict=True)]

    async def compare(simulation):
        for number in range(1 << width):
            simulation.set(value, number)
            assert tuple(simulation.get(signal) for signal in found) == (number % count, number // count)

    simulator = Simulator(m)
    simulator.add_testbench(compare)
    simulator.run()
