"""Testbench of tests.mvm.test_shared_products: waits until the component has gone through all its cases."""

import os

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge
from concord.sim.drivers.stream import start


@cocotb.test()
async def no_case_is_wrong(dut):
    """`count` goes round once, and `wrong` stays low."""
    await start(dut)
    await ClockCycles(dut.clk, int(os.environ["CASES"]) + 20)
    assert dut.done.value == 1
    assert dut.wrong.value == 0, "a product differs"
    await RisingEdge(dut.clk)
