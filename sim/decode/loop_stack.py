"""Testbench of hw.decode.loop_stack: a list of loops beside it."""

import cocotb
import numpy as np
from cocotb.triggers import Timer
from concord.sim.drivers.stream import clock, start
from concord.spec.isa.instructions import END_BITS, LOOP_DEPTH, REGISTER_BITS

CONFIGURATIONS = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "nearer.eq(further)", "new": "nearer.eq(nearer)"},
    {"old": "further.eq(nearer)", "new": "further.eq(further)"},
    {"old": "left[0] != 1", "new": "left[0] != 0"},
)


@cocotb.test()
async def follows_random_nesting(dut):
    """Random loops, some of one pass and some of the most passes, in any legal order of `enter` and `back`."""
    rng, loops = np.random.default_rng(cocotb.RANDOM_SEED), []
    await start(dut, "enter", "back", "count", "body")
    for _ in range(4000):
        dut.enter.value = dut.back.value = 0
        count = int(rng.choice((1, 2, 3, (1 << REGISTER_BITS) - 1), p=(0.4, 0.3, 0.28, 0.02)))
        first, kind = int(rng.integers(1 << END_BITS)), rng.random()
        dut.count.value, dut.body.value = count, first
        await Timer(1, "ns")
        if loops:
            left, body = loops[-1]
            assert (bool(dut.again.value), int(dut.target.value)) == (left > 1, body)
        if kind < 0.4 and len(loops) < LOOP_DEPTH:
            dut.enter.value = 1
            loops.append((count, first))
        elif kind < 0.9 and loops:
            dut.back.value = 1
            left, body = loops.pop()
            loops += [(left - 1, body)] * (left > 1)
        await clock(dut)
        dut.enter.value = dut.back.value = 0
        await clock(dut)
        if kind > 0.995:
            loops.clear()  # a program that ends in an error leaves its loops open
