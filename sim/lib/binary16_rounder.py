# amaranth: UnusedElaboratable=no
"""Testbench of hw.lib.binary16_rounder against golden.lib.float16."""

import cocotb
import numpy as np
from concord.golden.lib.float16 import from_integer
from concord.hw.lib.binary16_rounder import Binary16Rounder
from concord.sim.drivers.bench import CONFIG, assert_equal
from concord.sim.drivers.stream import drive_pipeline

TESTED = ("tiny", "serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "Cat(lost | lower, value)", "new": "Cat(lower, value)"},
)


def component(config) -> Binary16Rounder:
    """A rounder with all scales that may occur, and some beyond."""
    return Binary16Rounder(config.sum_bits, range(-32, 46))


WIDTH = CONFIG.sum_bits


@cocotb.test()
async def matches_golden(dut):
    """Integers of every size, and ties, with every scale."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    count = 10_000
    cuts = rng.integers(0, WIDTH, count).tolist()
    values = [int.from_bytes(rng.bytes(16), "little", signed=True) >> 128 - WIDTH + cut for cut in cuts]
    ties = [int(s) * (2 * int(m) + 1 << int(n)) for s, m, n in zip(
        rng.choice([-1, 1], count), rng.integers(1024, 2048, count), rng.integers(0, 20, count), strict=True)]
    values = [value for value in values + ties if -1 << WIDTH - 1 <= value < 1 << WIDTH - 1]
    scale = rng.integers(-32, 46, len(values))
    inputs = {"value": [value & (1 << WIDTH) - 1 for value in values], "scale": scale & 127}
    got = (await drive_pipeline(dut, inputs, ["o"], Binary16Rounder.latency))["o"]
    assert_equal("o", got, from_integer(np.array(values, object), scale), value=np.array(values, object), scale=scale)
