# amaranth: UnusedElaboratable=no
"""Testbench of hw.lib.queue: first in, first out, with the promised depth."""

import random

import cocotb
from concord.hw.lib.queue import Queue
from concord.sim.drivers.bench import CONFIG
from concord.sim.drivers.stream import Sink, StreamSource, clock, start

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "self.i.ready.eq(queue.w_rdy)", "new": "self.i.ready.eq(1)"},
)


def component(config) -> Queue:
    """A queue that is often full."""
    return Queue(24, config.chain_queue)


DEPTH = component(CONFIG).depth


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[(0.0, 0.0), (0.6, 0.1), (0.1, 0.6), (0.4, 0.4)])
async def keeps_order(dut, stall):
    """Payloads come out in order, `level` counts those inside, and without back-pressure one passes in every cycle."""
    chance, count = random.Random(cocotb.RANDOM_SEED), 500
    i, o = StreamSource(dut, "i", stall=stall[0]), Sink(dut, "o", stall=stall[1])
    await start(dut)
    sent = [chance.getrandbits(i.width) for _ in range(count)]
    i.put(*sent)
    level, cycles, first = 0, 0, {}
    while len(o.queue) < count:
        await clock(dut)
        cycles += 1
        assert int(dut.level.value) == level
        came, went = (int(port.valid.value) & int(port.ready.value) for port in (i, o))
        for event, happened in (("in", came), ("out", int(o.valid.value))):
            if happened:
                first.setdefault(event, cycles)
        level += came - went
        assert 0 <= level <= DEPTH
    assert await o.receive(count) == sent
    assert first["out"] - first["in"] == 2
    assert any(stall) or cycles <= count + 5


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def holds_its_depth(dut):
    """Under back-pressure it fills up to its depth, and then gives back every payload."""
    i, o = StreamSource(dut, "i"), Sink(dut, "o", stall=1.0)
    await start(dut)
    i.put(*range(DEPTH + 3))
    await clock(dut, DEPTH + 10)
    assert int(dut.level.value) == DEPTH
    assert not dut.i__ready.value
    o.stall = 0.0
    assert await o.receive(DEPTH + 3) == list(range(DEPTH + 3))
