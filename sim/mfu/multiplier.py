"""Testbench of hw.mfu.multiplier against golden.lib.float16. LATENCY is the unit's."""

import os

import cocotb
import numpy as np
from concord.golden.lib import float16
from concord.sim.drivers.comparison import assert_equal
from concord.sim.drivers.drive_pipeline import flow


@cocotb.test()
async def matches_golden(dut):
    """Any patterns, pairs whose product is near the smallest numbers, and bypasses."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    a, b = rng.integers(0, 1 << 16, (2, 20_000), dtype=np.uint16)
    field = np.clip(rng.integers(3, 20, a.size) - (a >> 10 & 31).astype(int), 0, 31).astype(np.uint16)
    b = np.where(rng.random(a.size) < 0.5, b, b & 0x83FF | field << 10)
    mul = rng.random(a.size) < 0.9
    got = (await flow(dut, {"a": a, "b": b, "mul": mul}, ["o"], int(os.environ["LATENCY"])))["o"]
    assert_equal("o", got, np.where(mul, float16.mul(a, b), a), mul=mul, a=a, b=b)
