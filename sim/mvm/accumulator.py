# amaranth: UnusedElaboratable=no
"""Testbench of hw.mvm.accumulator against golden.mvm.overflow: sums modulo their width, beat by beat."""

from collections import deque

import cocotb
import numpy as np
from amaranth.hdl import signed
from amaranth.lib import data
from concord.golden.mvm.overflow import Events, partial_events, wrap
from concord.hw.mvm.accumulator import Accumulator
from concord.sim.drivers.bench import CONFIG, Packer, assert_equal, unpack
from concord.sim.drivers.stream import clock, start
from concord.sim.stimulus.random_values import integers

TESTED = ("tiny", "serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "self.totals.eq(valid & last)", "new": "self.totals.eq(valid)"},
)

DUT = Accumulator(CONFIG)
WIDTH, LATENCY = DUT.width, DUT.latency
N, ENGINES = CONFIG.native_dim, CONFIG.tile_engines
TERMS = Packer(data.ArrayLayout(data.ArrayLayout(signed(WIDTH), N), ENGINES))
WORD = data.ArrayLayout(signed(CONFIG.sum_bits), CONFIG.mfu_lanes)


@cocotb.test()
@cocotb.parametrize(gap=[0.0, 0.4])
async def matches_golden(dut, gap):
    """Rows of tiles of one to ten beats; totals appear after the latency, and each of their words can be read."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    await start(dut, "valid", "last", "select")
    due, totals = [], None  # due: totals, and the cycle in which they must be announced
    picked, coming = deque([None] * 2), 0  # words that must show, the next one first; terms of the beat before
    expected, count, excess, cycle = Events(), 0, 0, 0

    async def step():
        nonlocal totals, coming, count, excess, cycle
        dut.terms.value, coming = coming, TERMS.join(integers(rng, WIDTH, (ENGINES, N)).tolist())
        select = int(rng.integers(CONFIG.vector_words))
        dut.select.value = select
        await clock(dut)
        cycle += 1
        if (want := picked.popleft()) is not None:
            assert_equal("o", unpack(WORD, [int(dut.o.value)])[0], want)
        picked.append(None if totals is None else totals.reshape(CONFIG.vector_words, -1)[select].tolist())
        told = bool(due) and due[0][0] == cycle
        assert bool(dut.totals.value) == told
        if told:
            totals = due.pop(0)[1]
        count, excess = count + int(dut.partial.value), max(excess, int(dut.excess.value))

    for _ in range(120):
        rows, beats = int(rng.integers(1, N + 1)), int(rng.integers(1, 11))
        terms = integers(rng, WIDTH, (beats, ENGINES, N)) >> int(rng.choice((0, WIDTH // 2)))
        for k in range(beats):
            while rng.random() < gap:
                dut.valid.value = 0
                await step()
            dut.valid.value, dut.last.value, dut.rows.value = 1, int(k == beats - 1), rows
            if k == beats - 1:
                due.append((cycle + 1 + LATENCY, wrap(terms.sum((0, 1)), CONFIG.sum_bits)))
            await step()
            coming = TERMS.join(terms[k].tolist())
        if CONFIG.count_overflows:
            expected += partial_events(CONFIG, terms.sum(1).T[:rows])
    dut.valid.value = 0
    for _ in range(20):
        await step()
    assert not due
    assert (count, excess) == (expected.partial, expected.excess_partial)
