# amaranth: UnusedElaboratable=no
"""Testbench of hw.dram.transfers: words and tiles of chains and words of the host, beside a model of the port."""

import cocotb
from concord.hw.dram.burst_reader import Range
from concord.hw.dram.transfers import GATHERED, Transfers
from concord.sim.dram.mover import KINDS
from concord.sim.dram.transfer_bench import CHAINS, Bench
from concord.sim.drivers.bench import Packer
from concord.sim.drivers.stream import clock, start, until

CONFIGURATIONS = ("tiny", "serial", "wide", "tiny_float", "speech")
TESTED = ("serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "self.write_done & self.running & ~mover.busy", "new": "self.write_done & self.running"},
    {"old": "~mover.busy & words.valid & words.ready", "new": "~mover.busy & words.valid"},
    {"old": "jobs.o.valid & ~taken & ~waiting(jobs.o.p.product, self.product)", "new": "jobs.o.valid & ~taken"},
    {"old": "host.valid & (host.p.first != next_)", "new": "0"},
    {"old": "| self.message_error |", "new": "|"},
    {"old": "| (count == GATHERED) |", "new": "|"},
    {"old": "delay_control(m, unpacker.done, WRITTEN)", "new": "unpacker.done"},
    {"old": "self.outside_range.valid & self.settled", "new": "self.outside_range.valid"},
    {"old": "self.outside.valid & ~taken), into", "new": "self.outside.valid), into"},
    {"old": "(self.unanswered == 0)", "new": "1"},
)

RANGE = Packer(Range)


def component(config) -> Transfers:
    """Transfers, which machines without Dram do not hold."""
    return Transfers(config)


async def chains(bench: Bench, count: int):
    """Run `count` reads, stores and loads beside each other."""
    words, stores, records, before = [], {}, [], dict(bench.done)
    for _ in range(count):
        words += bench.read()
        stores |= bench.store()
        records += bench.load()
    assert await bench.sinks["read"].receive(len(words)) == words
    assert await bench.sinks["packed"].receive(len(records)) == records
    await until(bench.dut, lambda: all(bench.done[name] == before[name] + count for name in CHAINS[:3]))
    bench.check(stores)


@cocotb.test(timeout_time=200, timeout_unit="us")
@cocotb.parametrize(stall=[0.0, 0.4], latency=[2, 100])
async def chains_of_all_kinds(dut, stall, latency):
    """Reads, stores and loads beside each other, then moves alone: words, order, numbers of finished chains."""
    bench = Bench(dut, stall, latency)
    await start(dut)
    dut.running.value = 1
    for _ in range(3):
        await chains(bench, 7)
        for kind in 2 * KINDS:
            await bench.move(kind)
    await clock(dut, 3)
    assert bench.port.idle
    assert bench.counts == [bench.words["read"], bench.words["written"]]


@cocotb.test(timeout_time=200, timeout_unit="us")
@cocotb.parametrize(stall=[0.0, 0.4], latency=[2, 100])
async def words_of_the_host(dut, stall, latency):
    """Messages of all lengths, and reads of what they have written; programs between them are not disturbed."""
    bench = Bench(dut, stall, latency)
    await start(dut)
    for number in range(24):
        count = bench.random.choice((1, 2, 5, GATHERED - 1, GATHERED, GATHERED + 1, 200))
        words = bench.message(bench.random.choice((7, 8, 12, 1 << 30)), count)
        first, size = min(words), bench.random.randint(1, count)
        if number % 3:
            await bench.sources["outside"].drain()
            bench.sources["outside_range"].put(RANGE.join({"first": first, "count": size, "last": 1}))
            wanted = [words[first + k] for k in range(size)]
            assert await bench.sinks["outside_words"].receive(size) == wanted
        if number % 8 == 7:
            await bench.settle()
            dut.running.value = 1
            await chains(bench, 2)
            dut.running.value = 0
        if number % 4:
            await bench.settle()
            bench.check(words)
    assert bench.counts == [bench.words["read"], bench.words["written"]]


@cocotb.test(timeout_time=200, timeout_unit="us")
@cocotb.parametrize(gap=[False, True], latency=[2, 60])
async def damaged_messages_leave_nothing(dut, gap, latency):
    """A message ends too early, before another one or with an error: words that came are written, and no more wait."""
    bench, words = Bench(dut, 0.3, latency), {}
    await start(dut)
    for number in range(30):
        count = bench.random.choice((1, 2, 70))
        words |= bench.message(1000 * number, count, left=bench.random.randint(1, 9))
        if not gap:
            await bench.sources["outside"].drain()
            dut.message_error.value = 1
            await bench.settle()
            bench.check(words)
            dut.message_error.value = 0
            await clock(dut)
        words |= bench.message(1000 * number + 500, bench.random.choice((1, 3)))
        if number % 3 == 0:
            await bench.settle()
            bench.check(words)
    await bench.settle()
    bench.check(words)
    assert bench.port.idle
