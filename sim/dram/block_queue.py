# amaranth: UnusedElaboratable=no
"""Testbench of hw.dram.block_queue: first in, first out, with the promised depth."""

import random

import cocotb
from concord.hw.dram.block_queue import BlockQueue
from concord.sim.drivers.stream import Sink, StreamSource, clock, start

CONFIGURATIONS = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "self.i.ready.eq(~(same & (written[bits] != read[bits])))", "new": "self.i.ready.eq(1)"},
    {"old": "(written != read) & (~there | free)", "new": "(written != read)"},
    {"old": "(written != read) & (~there | free)", "new": "~there | free"},
    {"old": "there & ~free", "new": "0"},
)
DEPTH = 16


def component(_) -> BlockQueue:
    """A queue that is often full."""
    return BlockQueue(24, DEPTH)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[(0.0, 0.0), (0.6, 0.1), (0.1, 0.6), (0.4, 0.4)])
async def keeps_order(dut, stall):
    """Payloads come out in order, and without back-pressure one passes in every cycle."""
    chance, count = random.Random(cocotb.RANDOM_SEED), 500
    i, o = StreamSource(dut, "i", stall=stall[0]), Sink(dut, "o", stall=stall[1])
    await start(dut)
    sent = [chance.getrandbits(i.width) for _ in range(count)]
    i.put(*sent)
    cycles, first = 0, {}
    while len(o.queue) < count:
        await clock(dut)
        cycles += 1
        for name, happened in (("in", i.valid.value and i.ready.value), ("out", o.valid.value)):
            if happened:
                first.setdefault(name, cycles)
    assert await o.receive(count) == sent
    assert first["out"] - first["in"] == 3
    assert any(stall) or cycles <= count + 6


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def holds_its_depth(dut):
    """Under back-pressure it takes its depth and two more, and then gives back every payload."""
    i, o = StreamSource(dut, "i"), Sink(dut, "o", stall=1.0)
    await start(dut)
    i.put(*range(DEPTH + 5))
    await clock(dut, DEPTH + 12)
    assert len(i.queue) == 3
    assert not dut.i__ready.value
    o.stall = 0.0
    assert await o.receive(DEPTH + 5) == list(range(DEPTH + 5))
