"""Testbench of hw.schedule.range_table: a list of the unfinished chains beside it."""

import random

import cocotb
from amaranth.utils import exact_log2
from concord.hw.lib.jobs import LOOKUP, TICKET, Wait
from concord.hw.schedule.range_table import CHAINS, RangeTable
from concord.sim.drivers.bench import Packer
from concord.sim.drivers.stream import clock, start

CONFIGURATIONS = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "ahead <= 0", "new": "ahead <= 1"},
    {"old": "chain.first < self.seek_stop", "new": "chain.first <= self.seek_stop"},
    {"old": "self.seek_first < chain.stop", "new": "self.seek_first <= chain.stop"},
    {"old": "m.d.sync += chain.valid.eq(waiting(chain, self.done))", "new": "pass"},
)
BITS = 16  #: Bits of an address.
WAIT = Packer(Wait)


def component(_) -> RangeTable:
    """A table, which machines without Dram do not hold."""
    return RangeTable(BITS)


def drawn(chance: random.Random) -> tuple[int, int]:
    first = chance.choice((0, 3, 5, 8, 9, 1 << BITS - 1, (1 << BITS) - 9))
    return first, first + chance.choice((1, 2, 4, 9))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def finds_the_youngest(dut):
    """Random ranges, of which chains finish at random; each is sought before it is noted."""
    chance, chains, count, done = random.Random(cocotb.RANDOM_SEED), {}, 0, 0
    seen = set()
    await start(dut, "note", "ticket", "first", "stop", "seek_first", "seek_stop", "clear", "done")
    for _ in range(3000):
        (first, stop), (seek, end) = drawn(chance), drawn(chance)
        dut.first.value, dut.stop.value, dut.seek_first.value, dut.seek_stop.value = first, stop, seek, end
        done = chance.randint(done, count) if chance.random() < 0.4 else done
        dut.done.value, dut.ticket.value, dut.clear.value = done % (1 << TICKET), (count + 1) % (1 << TICKET), 1
        await clock(dut, 2)
        dut.clear.value = 0
        await clock(dut, LOOKUP - 1)
        assert bool(dut.room.value) == (count + 1 - CHAINS <= done)
        meeting = [number for number, (low, high) in chains.items() if number > done and low < end and seek < high]
        found = WAIT.of(int(dut.found.value))
        assert bool(found["valid"]) == bool(meeting)
        if meeting:
            assert found["ticket"] == max(meeting) % (1 << TICKET)
        seen.add((len(meeting), bool(dut.room.value)))
        if dut.room.value:
            count += 1
            chains[count] = first, stop
            dut.note.value = 1
            await clock(dut)
            dut.note.value = 0
            await clock(dut)
    assert len(seen) > exact_log2(CHAINS) + 4, seen
