"""Testbench of hw.nnp against golden.machine: random programs through bus models with random pauses.

Environment variables: CONFIG is a preset or a configuration as JSON, PROGRAMS the number of legal programs in each
test. The file bins.json tells how many programs hit each bin of functional coverage.
"""

import json
import os
from collections import Counter
from pathlib import Path

import cocotb
import numpy as np
from cocotb.task import bridge
from concord.sim.drivers.bench import CONFIG
from concord.sim.machines.bus import Blocking, Bus
from concord.sim.machines.host import HardwareMachine
from concord.sim.machines.scoreboard import compare
from concord.sim.stimulus.functional_coverage import all_bins, bins
from concord.sim.stimulus.programs import Case, random_illegal, random_program
from concord.spec.host.registers import Register

CONFIGURATIONS = ("tiny", "serial", "wide", "tiny_softmax", "tiny_float", "tiny_vector")
TESTED = ()  # tests/host and tests/machine run the whole machine

PROGRAMS = int(os.environ.get("PROGRAMS", "40"))
HIT = Counter(dict.fromkeys(all_bins(CONFIG), 0))


async def begin(dut, stall: float) -> Bus:
    """Connect buses to a machine, start its clock and reset it."""
    bus = Bus(dut, CONFIG, seed=cocotb.RANDOM_SEED, gap=stall, stall=stall)
    await bus.start()
    return bus


def play(bus: Blocking, cases: list[Case]) -> None:
    """Run every case and compare with golden; the input comes before or after the start."""
    machine = HardwareMachine(bus)
    for number, case in enumerate(cases):
        wrong = compare(case, machine, late=number % 2 == 1)
        assert wrong is None, f"program {number}: {wrong}\n{case.text}"
        HIT.update(bins(case))
    Path("bins.json").write_text(json.dumps(HIT))


@cocotb.test()
async def registers(dut):
    """The registers describe the configuration of the machine."""
    bus = await begin(dut, 0.0)
    for register, value in ((Register.DIGEST, CONFIG.digest), (Register.NATIVE_DIM, CONFIG.native_dim),
                            (Register.MFU_LANES, CONFIG.mfu_lanes), (Register.STATUS, 0), (Register.ERROR, 0)):
        assert await bus.read(register) == value, register.name


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.4])
async def legal(dut, stall):
    """Random legal programs."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    bus = await begin(dut, stall)
    await bridge(play)(Blocking(bus), [random_program(CONFIG, rng, length=8) for _ in range(PROGRAMS)])


@cocotb.test()
async def illegal(dut):
    """Random programs that stop with an error."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    bus = await begin(dut, 0.2)
    await bridge(play)(Blocking(bus), [random_illegal(CONFIG, rng) for _ in range(3 * PROGRAMS // 2)])
