"""Testbench of hw.mfu.activation against sim.reference.multifunction."""

import cocotb
import numpy as np
from concord.sim.drivers.bench import CONFIG, assert_equal
from concord.sim.drivers.stream import drive_pipeline
from concord.sim.reference.multifunction import stage
from concord.spec.isa.operations import Stage, codes
from concord.spec.machine import timing

CONFIGURATIONS = ("tiny", "tiny_vector")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "exponent + v[\"offset\"]", "new": "exponent - v[\"offset\"]"},
    {"old": "(Cat(Const(0, 1), fraction) << zeros)", "new": "(fraction << zeros)"},
)

LATENCY = timing.activation(CONFIG.mfu_registers, more=CONFIG.more_functions)


@cocotb.test()
async def matches_golden(dut):
    """Every function of every bit pattern, in random order."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    op, a = np.meshgrid(codes(Stage.ACT, more=CONFIG.more_functions), np.arange(1 << 16, dtype=np.uint16))
    order = rng.permutation(a.size)
    op, a = op.reshape(-1)[order], a.reshape(-1)[order]
    got = (await drive_pipeline(dut, {"a": a, "op": op}, ["o"], LATENCY))["o"]
    assert_equal("o", got, stage(Stage.ACT, op, a), op=(op, Stage.ACT), a=a)
