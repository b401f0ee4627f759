# amaranth: UnusedElaboratable=no
"""Testbench of hw.mvm.accumulator against golden.mvm.overflow: sums modulo their width, beat by beat."""

from collections import deque

import cocotb
import numpy as np
from amaranth.hdl import signed
from amaranth.lib import data
from concord.golden.mvm.overflow import Events, partial_events, wrap
from concord.hw.mvm.accumulator import Accumulator
from concord.hw.mvm.row_groups import lateness
from concord.sim.drivers.bench import CONFIG, Packer, assert_equal, unpack
from concord.sim.drivers.stream import clock, start
from concord.sim.stimulus.random_values import integers

TESTED = ("tiny", "serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "self.totals.eq(valid & last)", "new": "self.totals.eq(valid)"},
)

DUT = Accumulator(CONFIG)
WIDTH, LATENCY = DUT.width, DUT.latency
LATE = lateness(CONFIG)
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
    picked = deque([None] * 2)  # words that must show, the next one first
    zeros = np.zeros((ENGINES, N), int)
    coming = deque([zeros] * (LATE[-1] + 1))  # terms of the latest beats, the last beat first
    before = deque([None] * (LATE[-1] + 1))  # totals of the latest cycles, the last cycle first
    expected, count, excess, cycle = Events(), 0, 0, 0

    async def step():
        nonlocal totals, count, excess, cycle
        dut.terms.value = TERMS.join([[int(coming[late][e, r]) for r, late in enumerate(LATE)] for e in range(ENGINES)])
        coming.appendleft(integers(rng, WIDTH, (ENGINES, N)))
        coming.pop()
        select = int(rng.integers(CONFIG.vector_words))
        dut.select.value = select
        await clock(dut)
        cycle += 1
        if (want := picked.popleft()) is not None:
            assert_equal("o", unpack(WORD, [int(dut.o.value)])[0], want)
        before.appendleft(totals)
        before.pop()
        rows = range(select * CONFIG.mfu_lanes, (select + 1) * CONFIG.mfu_lanes)
        picked.append(None if any(before[LATE[r]] is None for r in rows) else [int(before[LATE[r]][r]) for r in rows])
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
            coming[0] = terms[k]
        if CONFIG.count_overflows:
            expected += partial_events(CONFIG, terms.sum(1).T[:rows])
    dut.valid.value = 0
    for _ in range(20):
        await step()
    assert not due
    assert (count, excess) == (expected.partial, expected.excess_partial)
