# amaranth: UnusedElaboratable=no
"""Testbench of hw.sdram.sdram_controller with a model of the chip: bytes, rules of AXI4, the rate of long bursts."""

import os

import cocotb
from concord.sim.drivers.axi_manager import AxiManager
from concord.sim.drivers.bench import CONFIG
from concord.sim.drivers.stream import clock, start

MHZ = float(os.environ["MHZ"])
BUS = CONFIG.dram_bus
STRICT = int(os.environ["STRICT"])  #: What the port `strict` of the bench has.
WAIT = round(float(os.environ["POWER_UP"]) * MHZ)  #: Clock cycles before the first command.
READY = WAIT + 400  #: Clock cycles until the chip is ready, at most.
BURSTS = 30
MEMORY = {}  #: What the chip holds, from test to test.
CONFIGURATIONS = TESTED = ()  #: `sim.sdram.sdram_parts.run_bench` runs it, with the clocks and chips of a test.
COLUMNS = BUS // 2  #: Of a beat.


async def begin(dut, **options) -> AxiManager:
    """A manager of the controller, which is reset."""
    dut.strict.value = STRICT
    manager = AxiManager(dut, BUS, seed=cocotb.RANDOM_SEED, memory=MEMORY, **options)
    await start(dut)
    return manager


async def finish(dut, manager: AxiManager, most: int) -> int:
    """Let all bursts end, and return the number of clock cycles that they take."""
    cycles = 0
    while not manager.idle:
        await clock(dut)
        cycles += 1
        assert cycles < most, f"{manager.ended} bursts have ended after {cycles:,} cycles"
    return cycles


@cocotb.test()
async def bursts_wait_for_the_chip(dut):
    """Bursts that are asked for before the chip is ready are answered after that."""
    manager = await begin(dut)
    manager.start(4)
    await clock(dut, WAIT)
    assert not manager.ended
    await finish(dut, manager, READY + 4 * 64 * COLUMNS)


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.4], late=[0.0, 0.8])
async def bytes_are_what_was_written(dut, stall, late):
    """Reads and writes by turns, with byte strobes, in few rows and in many; a reset before leaves the bytes alone."""
    manager = await begin(dut, stall=stall, late=late, writes=0.6, blocks=[*range(8), 100, 101, 5000, 8190, 8191])
    manager.start(BURSTS)
    await finish(dut, manager, READY + 40 * BURSTS * 64 * COLUMNS)


@cocotb.test()
@cocotb.parametrize(writes=[0.0, 1.0])
async def long_bursts_fill_the_bus(dut, writes):
    """Of the peak, two bytes a cycle, long bursts of 16 bytes or more a beat reach 80 %."""
    manager = await begin(dut, writes=writes, blocks=range(30, 60), shortest=32)
    manager.start(BURSTS)
    await finish(dut, manager, READY + 40 * BURSTS * 64 * COLUMNS)
    manager.beats = 0
    manager.start(BURSTS)
    cycles = await finish(dut, manager, 40 * BURSTS * 64 * COLUMNS)
    share = manager.beats * COLUMNS / cycles
    dut._log.info(f"{share:.1%} of the peak")
    assert share > (0.8 if BUS >= 16 else 0.55)
