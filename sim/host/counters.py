# amaranth: UnusedElaboratable=no
"""Testbench of hw.host.counters: exact totals at any moment."""

import random
from collections import deque

import cocotb
from concord.hw.host.counters import LATE, EventCounters
from concord.sim.drivers.bench import assert_equal
from concord.sim.drivers.stream import clock, start
from concord.spec.host.registers import Counter

CONFIGURATIONS = ("tiny",)
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "total[:BITS] | total[BITS].replicate(BITS)", "new": "total[:BITS]"},
)


def component(config) -> EventCounters:
    """Counters with increments of many widths."""
    return EventCounters(WIDTHS)


MAXIMA = (Counter.EXCESS_PARTIAL, Counter.EXCESS_PRODUCT, Counter.EXCESS_OUTPUT)
LARGEST = (1 << 32) - 1
#: Bits of each counter's increment: one for most, many for some, and so many for a few that they saturate in a test.
WIDTHS = {counter: 8 if counter in MAXIMA else 24 if counter % 11 == 5 else 1 + 5 * (counter % 7 == 2)
          for counter in Counter}


class Bench:
    """The unit with random increments and random reads, and the totals in Python beside it."""

    def __init__(self, dut):
        self.dut, self.random = dut, random.Random(cocotb.RANDOM_SEED)
        self.totals = dict.fromkeys(Counter, 0)
        self.asked, self.earlier, self.reads = None, deque([None] * (LATE - 1)), 0  # reads of the last cycles
        self.add = dict.fromkeys(Counter, 0)
        dut.add.value = dut.clear.value = dut.counter__valid.value = 0

    async def cycle(self, *, rate: float, read: float, clear: float = 0.0):
        """Check the answer to the read that is due, then drive the next cycle."""
        dut = self.dut
        await clock(dut)
        self.earlier.append(self.asked)
        if (due := self.earlier.popleft()) is not None:
            counter, total = due
            assert_equal("count", int(dut.count.value), total, counter=counter.name)
            self.reads += 1
        self.asked = None
        if dut.counter__valid.value and dut.counter__ready.value:
            counter = Counter(int(dut.counter__payload.value))
            self.asked = counter
            dut.counter__valid.value = 0
        self._count(bool(dut.clear.value))
        if self.asked is not None:
            self.asked = self.asked, self.totals[self.asked]
        self.add = {c: self._increment(c, rate) if self.random.random() < rate else 0 for c in Counter}
        dut.add.value = self._packed()
        dut.clear.value = int(self.random.random() < clear)
        if (self.asked is not None or not dut.counter__valid.value) and self.random.random() < read:
            dut.counter__valid.value = 1
            dut.counter__payload.value = self.random.choice(list(Counter))

    def _count(self, cleared):
        for counter, new in self.add.items():
            old = self.totals[counter]
            grown = max(old, new) if counter in MAXIMA else min(old + new, LARGEST)
            self.totals[counter] = 0 if cleared else grown

    def _increment(self, counter, rate):
        """A random increment; at rate 1 the largest, for which the counters at the inputs must be wide enough."""
        most = (1 << WIDTHS[counter]) - 1
        return most if rate == 1.0 else self.random.choice((most, 1, self.random.randint(0, most)))

    def _packed(self):
        value, at = 0, 0
        for counter, width in WIDTHS.items():
            value, at = value | self.add[counter] << at, at + width
        return value


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(rate=[0.05, 1.0], read=[0.02, 1.0])
async def exact_at_any_moment(dut, rate, read):
    """A read returns the total of all earlier increments, at any load; large counters saturate."""
    bench = Bench(dut)
    await start(dut)
    for _ in range(3000):
        await bench.cycle(rate=rate, read=read)
    assert bench.reads > 10
    assert rate < 1.0 or any(total == LARGEST for total in bench.totals.values())


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def clears(dut):
    """Counting begins at 0 after a clear, also when a second clear comes while the first is running."""
    bench = Bench(dut)
    await start(dut)
    for _ in range(6000):
        await bench.cycle(rate=0.5, read=0.5, clear=0.01)
    assert bench.reads > 200


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reset_clears(dut):
    """A reset clears the totals too, though memory has no reset."""
    bench = Bench(dut)
    await start(dut)
    for _ in range(300):
        await bench.cycle(rate=1.0, read=0.0)
    dut.rst.value = 1
    await clock(dut)
    dut.rst.value = dut.add.value = 0
    bench.totals, bench.add = dict.fromkeys(Counter, 0), dict.fromkeys(Counter, 0)
    bench.asked, bench.earlier = None, deque([None] * (LATE - 1))
    for _ in range(3000):
        await bench.cycle(rate=0.1, read=0.5)
    assert bench.reads > 200
