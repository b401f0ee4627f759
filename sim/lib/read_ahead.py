# amaranth: UnusedElaboratable=no
"""Testbench of hw.lib.read_ahead: requested words, which come later, are not lost and never exceed the room."""

import random
from collections import deque

import cocotb
from amaranth.lib import data
from concord.hw.lib.payloads import VECTOR_READ, word
from concord.hw.lib.read_ahead import ReadAhead
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import Sink, clock, start

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "self.room.eq(under_way != self.DEPTH)", "new": "self.room.eq(queue.level != self.DEPTH)"},
)


def component(config) -> ReadAhead:
    """A reader whose words carry tags of 3 bits."""
    return ReadAhead(config, 3)


TAG, DEPTH = component(CONFIG).tag_bits, ReadAhead.DEPTH
WORD = word(CONFIG).size
OUT = Packer(data.StructLayout({"word": WORD, "tag": TAG}))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(take=[1.0, 0.5], stall=[0.0, 0.7])
async def loses_nothing(dut, take, stall):
    """Words requested whenever there is room arrive in order with their tags; at most DEPTH are under way."""
    chance, count = random.Random(cocotb.RANDOM_SEED), 500
    sink = Sink(dut, "o", stall=stall)
    await start(dut, "take")
    under_way, wanted, cycles = 0, [], 0
    began = came = None  # cycles of the first request and of the first word
    dut.tag.value = tag = 0
    reading = deque([0] * (VECTOR_READ - 1))  # words that have been read and do not show yet
    while len(sink.queue) < count:
        await clock(dut)
        cycles += 1
        asked = int(dut.take.value)
        assert bool(dut.room.value) == (under_way < DEPTH)
        assert bool(dut.empty.value) == (under_way == 0)
        if asked and began is None:
            began = cycles
        if dut.o__valid.value and came is None:
            came = cycles
        coming = chance.getrandbits(WORD)
        reading.append(coming)  # noise if no word was requested
        dut.word.value = reading.popleft()
        if asked:
            wanted.append({"word": coming, "tag": tag})
        under_way += asked - (int(dut.o__valid.value) & int(dut.o__ready.value))
        tag = chance.getrandbits(TAG)
        dut.tag.value = tag
        dut.take.value = int(under_way < DEPTH and chance.random() < take)
    assert [OUT.of(payload) for payload in await sink.receive(count)] == wanted[:count]
    assert came - began == VECTOR_READ + 2
    assert take < 1 or stall or cycles <= count + 6
