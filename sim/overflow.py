"""Testbench of hw.overflow against golden.overflow."""

import os

import cocotb
import numpy as np
from amaranth.hdl import signed
from amaranth.lib import data

from golden.overflow import misfits
from sim.draw import integers
from sim.flow import flow
from sim.stream import pack

COUNT, WIDTH, BITS, LATENCY = (int(os.environ[name]) for name in ("COUNT", "WIDTH", "BITS", "LATENCY"))


@cocotb.test()
async def matches_golden(dut):
    """Integers of all sizes, any number of them used, some cycles without."""
    rng, cycles = np.random.default_rng(cocotb.RANDOM_SEED), 1000
    values = integers(rng, WIDTH, (cycles, COUNT))
    small = rng.random((cycles, 1)) < 0.3
    values = np.where(small, values >> max(0, WIDTH - BITS), values)
    valid, used = rng.random(cycles) < 0.8, rng.integers(0, COUNT + 1, cycles)
    shape = data.ArrayLayout(signed(WIDTH), COUNT)
    got = await flow(dut, {"values": pack(shape, values), "valid": valid, "used": used}, ["misfits", "excess"], LATENCY)
    want = [misfits(row[:count], BITS) if on else (0, 0) for row, count, on in zip(values, used, valid, strict=True)]
    assert list(zip(got["misfits"], got["excess"], strict=True)) == want
    assert len({excess for _, excess in want}) > min(2, WIDTH - BITS), "too few different excesses to be a test"
