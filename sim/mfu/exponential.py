"""Testbench of hw.mfu.exponential against golden.mfu.softmax."""

import cocotb
import numpy as np
from concord.golden.mfu.softmax import exponential
from concord.hw.mfu.exponential import Exponential
from concord.sim.drivers.bench import assert_equal
from concord.sim.drivers.stream import drive_pipeline
from concord.spec.numbers.softmax import DISTANCE_BITS, wholes

CONFIGURATIONS = ("tiny_softmax",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "fall >> softmax.LOW_BITS", "new": "fall >> softmax.LOW_BITS + 1"},
    {"old": "delay(m, shift, 5)", "new": "delay(m, shift, 4)"},
)


@cocotb.test()
async def matches_golden(dut):
    """Distances of both tables, the first and last ones of each row among them, and distances beyond."""
    rng, rows = np.random.default_rng(cocotb.RANDOM_SEED), len(wholes()) + 1
    edges = np.arange(1, rows) * (1 << DISTANCE_BITS)
    far = rng.integers(0, 1 << 33, 2000) >> rng.integers(0, 33, 2000)
    distance = np.concatenate([rng.integers(0, rows << DISTANCE_BITS, 20_000), edges, edges - 1, far, [(1 << 33) - 1]])
    rng.shuffle(distance)
    got = (await drive_pipeline(dut, {"distance": distance}, ["o"], Exponential.latency))["o"]
    assert_equal("o", got, exponential(distance), distance=distance)
