"""Testbench of hw.mfu.adder against golden.lib.float16. LATENCY is the unit's."""

import os

import cocotb
import numpy as np
from concord.golden.lib import float16
from concord.sim.drivers.comparison import assert_equal
from concord.sim.drivers.drive_pipeline import flow
from concord.spec.mfu import AddOp

GOLDEN = {
    AddOp.BYPASS: lambda a, b: a, AddOp.ADD: float16.add, AddOp.A_SUB_B: float16.sub,
    AddOp.B_SUB_A: lambda a, b: float16.sub(b, a), AddOp.MAX: float16.maximum}


@cocotb.test()
async def matches_golden(dut):
    """Any patterns, and pairs that nearly cancel, the operation changing every cycle."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    a, b = rng.integers(0, 1 << 16, (2, 20_000), dtype=np.uint16)
    near = a ^ rng.choice(np.array([0, 0x8000, 0x8001, 3, 0x400], np.uint16), a.size)
    b = np.where(rng.random(a.size) < 0.5, b, near)
    op = rng.integers(0, len(AddOp), a.size)
    want = np.select([op == code for code in GOLDEN], [function(a, b) for function in GOLDEN.values()])
    got = (await flow(dut, {"a": a, "b": b, "op": op}, ["o"], int(os.environ["LATENCY"])))["o"]
    assert_equal("o", got, want, op=(op, AddOp), a=a, b=b)
