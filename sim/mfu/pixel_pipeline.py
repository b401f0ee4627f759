"""Testbench of hw.mfu.pixel_pipeline against golden: pixels of vector memories and of VectorRf become words."""

import random
from collections import deque

import cocotb
import numpy as np
from concord.golden.mfu.multifunction import pool_max
from concord.golden.mvm.vector_rf import numbers
from concord.hw.lib.payloads import word
from concord.hw.mfu.pixel_pipeline import PixelPipeline
from concord.hw.schedule.gather import pixel
from concord.sim.drivers.bench import CONFIG, assert_equal, pack, unpack
from concord.sim.drivers.stream import Sink, clock, start

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "under_way + self.take - left", "new": "under_way + self.take - self.o.valid"},
    {"old": "Mux(from_entries, numbers.o", "new": "Mux(last, numbers.o"},
    {"old": "& last & pool", "new": "& last"},
)

DEPTH = PixelPipeline.DEPTH
AHEAD = 2  #: Cycles from the read of a pixel to its arrival.


def stimulus(rng, count: int) -> dict:
    """Fields of random pixels; a window comes from one memory and has one mode."""
    fmt, lanes = CONFIG.activations, CONFIG.mfu_lanes
    last = rng.random(count) < 0.6
    last[-1] = True
    first = np.concatenate([[True], last[:-1]])
    window = np.cumsum(first) - 1
    from_entries, integer, unsigned, pool = rng.integers(0, 2, (4, count))[:, window]
    return {
        "word": rng.integers(0, 1 << 16, (count, lanes)), "first": first, "last": last, "from_entries": from_entries,
        "lanes": {"mantissas": rng.integers(fmt.lowest, fmt.highest + 1, (count, lanes)),
                  "exponent": rng.integers(0, fmt.e_max - fmt.e_min + 1, count)},
        "mode": {"integer": integer, "unsigned": integer & unsigned}, "pool": pool}


def expected(pixels: dict) -> np.ndarray:
    """The words of the chain, uint16[windows, M]."""
    words, mode = pixels["word"].astype(np.uint16), pixels["mode"]
    for integer, unsigned in ((0, 0), (1, 0), (1, 1)):
        chosen = (pixels["from_entries"] == 1) & (mode["integer"] == integer) & (mode["unsigned"] == unsigned)
        words[chosen] = numbers(CONFIG, *(lanes[chosen] for lanes in pixels["lanes"].values()), integer=bool(integer),
                                unsigned=bool(unsigned))
    ends = np.flatnonzero(pixels["last"]) + 1
    return np.stack([pool_max(window) for window in np.split(words, ends[:-1])])


async def read(dut, payloads, first, sink, pause: float) -> tuple[int, int]:
    """Drive pixels as the gather unit does. Returns the number of cycles, and the number of pulses of `pooled`."""
    under_way, queue, chance = deque([0] * AHEAD), deque(zip(payloads, first, strict=True)), random.Random(len(first))
    taken = received = cycles = pooled = 0
    while received < int(first.sum()):
        take = 0
        if queue and chance.random() >= pause and (not queue[0][1] or taken - received < DEPTH):
            payload, take = queue.popleft()
            taken += bool(take)
            under_way.append(payload << 1 | 1)
        else:
            under_way.append(0)
        dut.take.value, dut.i.value = int(take), under_way.popleft()
        await clock(dut)
        assert dut.room.value or not take, "there is room for a word fewer than DEPTH"
        received, cycles, pooled = len(sink.queue), cycles + 1, pooled + int(dut.pooled.value)
    return cycles, pooled


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5], pause=[0.0, 0.3])
async def matches_golden(dut, stall, pause):
    """Random pixels at full rate and with gaps, into a queue that is emptied at once or now and then."""
    rng, count = np.random.default_rng(cocotb.RANDOM_SEED), 1500
    pixels = stimulus(rng, count)
    dut.take.value = dut.i.value = 0
    sink = Sink(dut, "o", stall=stall)
    await start(dut)
    cycles, pooled = await read(dut, pack(pixel(CONFIG), pixels), pixels["first"], sink, pause)
    assert stall or pause or cycles < count + 20, f"{cycles} cycles for {count} pixels"
    assert_equal("o", unpack(word(CONFIG), list(sink.queue)), expected(pixels))
    assert pooled == int((pixels["last"] & (pixels["pool"] == 1)).sum())
