"""Testbench of hw.mfu.activation against golden.mfu.activation. LATENCY is the unit's."""

import os

import cocotb
import numpy as np
from concord.golden.lib import float16
from concord.golden.mfu.activation import sigmoid, tanh
from concord.sim.drivers.comparison import assert_equal
from concord.sim.drivers.drive_pipeline import flow
from concord.spec.mfu import ActOp


@cocotb.test()
async def matches_golden(dut):
    """Random patterns, the function changing every cycle."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    a = rng.integers(0, 1 << 16, 30_000, dtype=np.uint16)
    op = rng.integers(0, len(ActOp), a.size)
    want = np.choose(op, [a, float16.relu(a), sigmoid(a), tanh(a)])
    got = (await flow(dut, {"a": a, "op": op}, ["o"], int(os.environ["LATENCY"])))["o"]
    assert_equal("o", got, want, op=(op, ActOp), a=a)
