# amaranth: UnusedElaboratable=no
"""Testbench of hw.accelerator.accelerator: random lists of commands against golden, with a memory that mixes answers.

Environment variable: LISTS is the number of lists of each test.
"""

import os

import cocotb
import numpy as np
from amaranth import Module
from amaranth.lib.wiring import In
from cocotb.task import bridge, resume
from concord.hw.accelerator.accelerator import Accelerator as Top
from concord.hw.nnp import NNP
from concord.sim.drivers.axi_memory import AxiMemory
from concord.sim.drivers.axi_monitor import AxiMonitor
from concord.sim.drivers.axi_stream import lite_master
from concord.sim.drivers.stream import clock, start
from concord.sim.machines.accelerator_scoreboard import compare
from concord.sim.machines.accelerators import AcceleratorMachine, GoldenAccelerator
from concord.sim.stimulus.command_faults import IN_CORES, failing_list
from concord.sim.stimulus.command_lists import ACCELERATORS, CommandList, random_list
from concord.spec.accelerator.registers import AcceleratorRegister, AcceleratorStatus

CONFIGURATIONS = ("tiny", "serial")
TESTED = ()  # tests/machine/test_accelerator.py runs whole lists
LISTS = int(os.environ.get("LISTS", "2"))
TIMEOUT = 1 + LISTS  #: Milliseconds.
#: Accelerator of a preset: one core, or two kinds.
SHAPES = {"tiny": "one", "serial": "two"}
NAME = SHAPES.get(os.environ.get("CONFIG", "tiny"), "one")


class WithCores(Top):
    """The accelerator with its cores inside, instead of modules that somebody else brings."""

    def _core(self, number, met):
        m = Module()
        m.submodules.core = core = NNP(self.accelerator.cores[number], watched=True)
        for name, (flow, wire) in met.items():
            inner = core.watch.as_value() if name == "watch" else getattr(core, name)
            m.d.comb += inner.eq(wire) if flow == In else wire.eq(inner)
        return m


def component(config) -> WithCores:
    """A small accelerator."""
    return WithCores(ACCELERATORS["one" if config.message_bytes == 4 else "two"])


class Simulated(AcceleratorMachine):
    """The accelerator in this simulation, for code without coroutines."""

    def __init__(self, dut, stall: float):
        self.dut, self.accelerator = dut, ACCELERATORS[NAME]
        self.memory = AxiMemory(dut, self.accelerator.bus, self.accelerator.memory_bytes, stall=stall, latency=40)
        self.monitor = AxiMonitor(dut, self.accelerator.bus)
        self.host = lite_master(dut, "s_axil", cocotb.RANDOM_SEED, stall)

    def read_register(self, address: int) -> int:
        return resume(self.host.read_dword)(address)

    def write_register(self, address: int, value: int) -> None:
        resume(self.host.write_dword)(address, value)

    def read_memory(self, address: int, count: int) -> bytes:
        return bytes(self.memory.contents[address:address + count])

    def write_memory(self, address: int, data: bytes) -> None:
        self.memory.contents[address:address + len(data)] = data

    def run(self, timeout: int = 200_000) -> AcceleratorStatus:
        for _ in range(0, timeout, 50):
            status = AcceleratorStatus(self.read_register(AcceleratorRegister.STATUS))
            busy = status & (AcceleratorStatus.BUSY | AcceleratorStatus.MEMORY_BUSY)
            if not busy and not self.read_register(AcceleratorRegister.BUSY_CORES):
                return status
            resume(clock)(self.dut, 50)
        raise AssertionError(f"the list has not ended within {timeout:,} cycles: {status!r}")

    @property
    def interrupt(self) -> bool:
        return bool(self.dut.irq.value)


def play(machine: Simulated, lists: list[CommandList]) -> None:
    """Run each list here and on golden, which begins with the memories that hardware has at power-up."""
    for number, one in enumerate(lists):
        wrong = compare(one, GoldenAccelerator(machine.accelerator), machine)
        assert not wrong, f"list {number}: {wrong.text}"
        assert machine.monitor.ended


@cocotb.test(timeout_time=TIMEOUT, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.3])
async def lists(dut, stall):
    """Random lists that end."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    machine = Simulated(dut, stall)
    await start(dut)
    await bridge(play)(machine, [random_list(machine.accelerator, rng) for _ in range(LISTS)])


@cocotb.test(timeout_time=TIMEOUT, timeout_unit="ms")
async def failures(dut):
    """Lists of which a command fails in its core, and after each a reset."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    machine = Simulated(dut, 0.1)
    await start(dut)
    await bridge(play)(machine, [failing_list(machine.accelerator, rng, error) for error in IN_CORES[:LISTS]])
