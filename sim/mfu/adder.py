"""Testbench of hw.mfu.adder against sim.reference.multifunction."""

import cocotb
import numpy as np
from concord.sim.drivers.bench import CONFIG, assert_equal
from concord.sim.drivers.stream import drive_pipeline
from concord.sim.reference.multifunction import stage
from concord.spec.isa.operations import Stage, codes
from concord.spec.machine import timing

CONFIGURATIONS = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "front[15] & ~(v[\"zero\"] & v[\"differ\"])", "new": "front[15]"},
    {"old": "value[:3].any()", "new": "value[2]"},
)


@cocotb.test()
async def matches_golden(dut):
    """Random bit patterns, and pairs that nearly cancel; the operation changes every cycle."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    a, b = rng.integers(0, 1 << 16, (2, 20_000), dtype=np.uint16)
    near = a ^ rng.choice(np.array([0, 0x8000, 0x8001, 3, 0x400], np.uint16), a.size)
    b = np.where(rng.random(a.size) < 0.5, b, near)
    op = rng.choice(codes(Stage.ADD), a.size)
    got = (await drive_pipeline(dut, {"a": a, "b": b, "op": op}, ["o"], timing.adder(CONFIG.mfu_registers)))["o"]
    assert_equal("o", got, stage(Stage.ADD, op, a, b), op=(op, Stage.ADD), a=a, b=b)
