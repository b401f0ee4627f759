"""Testbench of hw.mfu.pooling against golden.mfu.multifunction: windows of one and of more pixels."""

import cocotb
import numpy as np
from amaranth.lib import data
from concord.golden.mfu.multifunction import pool_max
from concord.hw.mfu.pooling import Pooling
from concord.sim.drivers.bench import CONFIG, assert_equal, pack, unpack
from concord.sim.drivers.stream import drive_pipeline

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "with m.If(first | undefined | behind)", "new": "with m.If(undefined | behind)"},
    {"old": "Mux(apart, a.sign, answer)", "new": "answer", "file": "hw/lib/float16.py"},
    {"old": "number.exponent.all() & number.fraction.any()", "new": "number.exponent.all()"},
    {"old": "seen | nan", "new": "nan"},
)

LANES = CONFIG.mfu_lanes
PIXEL = data.StructLayout({"valid": 1, "word": data.ArrayLayout(16, LANES), "first": 1, "last": 1})
RESULT = data.StructLayout({"valid": 1, "word": data.ArrayLayout(16, LANES)})


@cocotb.test()
async def matches_golden(dut):
    """Random patterns, with small numbers, zeros and infinities of both signs, and random gaps between pixels."""
    rng, count = np.random.default_rng(cocotb.RANDOM_SEED), 6000
    words = rng.integers(0, 1 << 16, (count, LANES), dtype=np.uint16)
    words = np.where(rng.random((count, 1)) < 0.4, words & 0x8003, words)
    words = np.where(rng.random((count, LANES)) < 0.1, words & 0x8000 | 0x7C00, words)
    last = rng.random(count) < 0.3
    first = np.concatenate([[True], last[:-1]])
    last[-1] = True
    windows = np.split(words, np.flatnonzero(last)[:-1] + 1)

    # Each pixel comes at a cycle of its own; between them the port shows noise.
    cycles = np.cumsum(rng.integers(1, 3, count))
    noise = rng.integers(0, 1 << 16, (cycles[-1] + 1, LANES), dtype=np.uint16)
    record = {"valid": np.zeros(len(noise), int), "word": noise, **{
        name: rng.integers(0, 2, len(noise)) for name in ("first", "last")}}
    for name, values in (("valid", 1), ("word", words), ("first", first), ("last", last)):
        record[name][cycles] = values
    got = unpack(RESULT, (await drive_pipeline(dut, {"i": pack(PIXEL, record)}, ["o"], Pooling.latency))["o"])
    wanted = np.zeros(len(noise), int)
    wanted[cycles[last]] = 1
    assert_equal("valid", got["valid"], wanted)
    assert_equal("word", got["word"][cycles[last]], [pool_max(window) for window in windows])
