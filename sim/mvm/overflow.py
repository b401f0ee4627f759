# amaranth: UnusedElaboratable=no
"""Testbench of hw.mvm.overflow against golden.mvm.overflow."""

import cocotb
import numpy as np
from amaranth.hdl import signed
from amaranth.lib import data
from concord.golden.mvm.overflow import misfits
from concord.hw.mvm.overflow import OverflowCounter
from concord.sim.drivers.bench import CONFIG, assert_equal, pack
from concord.sim.drivers.stream import drive_pipeline
from concord.sim.stimulus.random_values import integers

TESTED = ("tiny", "serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "self.used > k", "new": "self.used >= k"},
)


def component(config) -> OverflowCounter:
    """A counter of values that are wider than those of most machines."""
    return OverflowCounter(config.native_dim, 30, config.product_bits)


DUT = component(CONFIG)
COUNT, WIDTH, BITS = DUT.count, DUT.width, DUT.bits


@cocotb.test()
async def matches_golden(dut):
    """Integers of all sizes, of which a random number is used; in some cycles the input is not valid."""
    rng, cycles = np.random.default_rng(cocotb.RANDOM_SEED), 1000
    values = integers(rng, WIDTH, (cycles, COUNT))
    small = rng.random((cycles, 1)) < 0.3
    values = np.where(small, values >> max(0, WIDTH - BITS), values)
    valid, used = rng.random(cycles) < 0.8, rng.integers(0, COUNT + 1, cycles)
    shape = data.ArrayLayout(signed(WIDTH), COUNT)
    inputs = {"values": pack(shape, values), "valid": valid, "used": used}
    got = await drive_pipeline(dut, inputs, ["misfits", "excess"], DUT.latency)
    want = [misfits(row[:count], BITS) if on else (0, 0) for row, count, on in zip(values, used, valid, strict=True)]
    for k, name in enumerate(("misfits", "excess")):
        assert_equal(name, got[name], [each[k] for each in want], values=values, valid=valid, used=used)
    assert len({excess for _, excess in want}) > min(2, WIDTH - BITS), "too few different excesses to be a test"
