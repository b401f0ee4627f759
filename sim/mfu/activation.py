"""Testbench of hw.mfu.activation against sim.reference.multifunction."""

import cocotb
import numpy as np
from concord.hw.mfu.activation import Activation
from concord.sim.drivers.bench import CONFIG, assert_equal
from concord.sim.drivers.stream import drive_pipeline
from concord.sim.reference.multifunction import stage
from concord.spec.isa.operations import Stage, codes

CONFIGURATIONS = ("tiny", "tiny_vector")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "delay(m, offset, 2)", "new": "delay(m, offset, 1)"},
    {"old": "a.fraction << count + 1", "new": "a.fraction << count"},
)


@cocotb.test()
async def matches_golden(dut):
    """Random bit patterns; the function changes every cycle."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    a = rng.integers(0, 1 << 16, 30_000, dtype=np.uint16)
    op = rng.choice(codes(Stage.ACT, more=CONFIG.more_functions), a.size)
    got = (await drive_pipeline(dut, {"a": a, "op": op}, ["o"], Activation.latency))["o"]
    assert_equal("o", got, stage(Stage.ACT, op, a), op=(op, Stage.ACT), a=a)
