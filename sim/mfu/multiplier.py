"""Testbench of hw.mfu.multiplier against sim.reference.multifunction."""

import cocotb
import numpy as np
from concord.sim.drivers.bench import CONFIG, assert_equal
from concord.sim.drivers.stream import drive_pipeline
from concord.sim.reference.multifunction import stage
from concord.spec.isa.operations import BYPASS, Operation, Stage
from concord.spec.machine import timing

CONFIGURATIONS = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "(field >= 30) | ((field == 29) & carry)", "new": "field >= 30"},
)


@cocotb.test()
async def matches_golden(dut):
    """Random bit patterns, pairs whose product is near the smallest numbers, and bypasses."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    a, b = rng.integers(0, 1 << 16, (2, 20_000), dtype=np.uint16)
    field = np.clip(rng.integers(3, 20, a.size) - (a >> 10 & 31).astype(int), 0, 31).astype(np.uint16)
    b = np.where(rng.random(a.size) < 0.5, b, b & 0x83FF | field << 10)
    op = np.where(rng.random(a.size) < 0.9, Operation.VV_MUL.code, BYPASS)
    got = (await drive_pipeline(dut, {"a": a, "b": b, "op": op}, ["o"], timing.multiplier(CONFIG.mfu_registers)))["o"]
    assert_equal("o", got, stage(Stage.MUL, op, a, b), op=(op, Stage.MUL), a=a, b=b)
