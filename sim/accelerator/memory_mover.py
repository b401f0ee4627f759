# amaranth: UnusedElaboratable=no
"""Testbench of hw.accelerator.memory_mover: a memory with late, wrong and short answers, and a monitor of its port."""

import random

import cocotb
from concord.hw.accelerator.memory_mover import BEATS, MemoryMover, MoverJob, MoverTask
from concord.sim.drivers.axi_memory import AxiMemory
from concord.sim.drivers.axi_monitor import AxiMonitor
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import StreamSource, clock, every_cycle, start, until
from concord.spec.accelerator.accelerator import ALIGNED
from concord.spec.accelerator.commands import BYTES

CONFIGURATIONS = ("tiny", "serial", "wide")
TESTED = ("serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "ResetInserter(self.state == State.FREE)(BlockQueue(8 * self.size, BEATS))",
     "new": "BlockQueue(8 * self.size, BEATS)"},
    {"old": "self.job.ready.eq(self.idle & ~self.reset)", "new": "self.job.ready.eq(self.idle)"},
    {"old": "Mux(self.lost | self.reset, State.FREE, state)", "new": "Mux(self.reset, State.FREE, state)"},
    {"old": "Mux(self.lost | self.reset, State.FREE, state)", "new": "Mux(self.lost, State.FREE, state)"},
    {"old": "self.wrong.eq(0), self.count.eq(0)", "new": "self.count.eq(0)"},
    {"old": "Mux(source > target, source, target)", "new": "source"},
    {"old": "Mux(source > target, source, target)", "new": "target"},
    {"old": "Mux(self.left < self.piece, self.left, self.piece)", "new": "self.piece"},
    {"old": "(self.task == MoverTask.COPY) & ~over", "new": "self.task == MoverTask.COPY"},
    {"old": "with m.If((self.task == MoverTask.FETCH) & ~over):", "new": "with m.If(self.task == MoverTask.FETCH):"},
    {"old": "bad = self.wrong | failed(self.m_axi_rresp) | over | ~ends", "new": "bad = self.wrong | over | ~ends"},
    {"old": "bad = self.wrong | failed(self.m_axi_rresp) | over | ~ends",
     "new": "bad = self.wrong | failed(self.m_axi_rresp) | over"},
    {"old": "self.wrong | failed(self.m_axi_rresp) | over | (", "new": "self.wrong | over | ("},
    {"old": "self.m_axi_awvalid.eq(~asked)", "new": "self.m_axi_awvalid.eq(1)"},
    {"old": "self.buffer.o.valid & ~given)", "new": "self.buffer.o.valid)"},
    {"old": "self.buffer.o.ready.eq(self.m_axi_wready & ~given)", "new": "self.buffer.o.ready.eq(1)"},
    {"old": "more, units = self.left.any() & ~failed(self.m_axi_bresp)", "new": "more, units = self.left.any()"},
    {"old": "self.wrong.eq(failed(self.m_axi_bresp))", "new": "self.wrong.eq(0)"},
    {"old": "self.ended.eq(~self.lost & ~self.reset)", "new": "self.ended.eq(~self.lost)"},
    {"old": "Mux(signals, strobes, -1)", "new": "-1", "config": "serial"},
)
SIZES = {4: 4, 8: 16, 16: 64}  #: Bytes of the bus, by the bytes of a beat of messages.
MEMORY = 1 << 16
JOB = Packer(MoverJob)


def component(config) -> MemoryMover:
    """A mover with a bus of another width for each preset."""
    return MemoryMover(SIZES[config.message_bytes])


UNIT = component(CONFIG)


class Bench:
    """The mover, and a memory that is full of random bytes."""

    def __init__(self, dut, stall: float, latency: int = 20):
        self.dut, self.random, self.ended = dut, random.Random(cocotb.RANDOM_SEED), []
        dut.reset.value = 0
        self.memory = AxiMemory(dut, UNIT.size, MEMORY, stall=stall, latency=latency)
        self.monitor = AxiMonitor(dut, UNIT.size)
        self.memory.contents[:] = self.random.randbytes(MEMORY)
        self.contents, self.jobs = bytearray(self.memory.contents), StreamSource(dut, "job")
        every_cycle(dut, self._watch)

    def _watch(self):
        if self.dut.ended.value:
            self.ended.append(bool(self.dut.error.value))

    def drawn(self, most: int = 6 * BEATS) -> tuple[int, int, int]:
        """Two ranges that do not meet: where they begin, and their length."""
        count = ALIGNED * self.random.choice((1, 2, self.random.randint(1, most * UNIT.size // ALIGNED)))
        while True:
            first, second = (self.random.randrange(0, MEMORY - count + 1, ALIGNED) for _ in range(2))
            if abs(first - second) >= count:
                return first, second, count

    def put(self, task: MoverTask, first: int, second: int = 0, count: int = 0):
        """Queue a task."""
        self.jobs.put(JOB.join({"task": task.value, "first": first, "second": second, "count": count}))

    async def done(self) -> bool:
        """Wait for the end of a task. Returns whether it has an error."""
        count = len(self.ended)
        await until(self.dut, lambda: len(self.ended) > count)
        await clock(self.dut)
        assert self.dut.idle.value
        assert self.memory.idle
        assert self.monitor.ended
        return self.ended[-1]

    async def copy(self, first: int, second: int, count: int) -> bool:
        """Copy, and compare all of the memory. Returns whether there was an error."""
        self.put(MoverTask.COPY, first, second, count)
        error = await self.done()
        if not error:
            self.contents[second:second + count] = self.contents[first:first + count]
            assert self.memory.contents == self.contents, f"{count} bytes from {first:#x} to {second:#x}"
        return error

    async def fetch(self, address: int) -> bool:
        """Read a command. Returns whether there was an error."""
        self.put(MoverTask.FETCH, address)
        error = await self.done()
        found = int(self.dut.command.value).to_bytes(BYTES, "little")
        assert error or found == self.contents[address:address + BYTES]
        return error

    async def signal(self, address: int) -> bool:
        """Write a word. Returns whether there was an error."""
        value = self.random.getrandbits(32)
        self.put(MoverTask.SIGNAL, value, address)
        error = await self.done()
        if not error:
            self.contents[address:address + 4] = value.to_bytes(4, "little")
            assert self.memory.contents == self.contents, f"4 bytes at {address:#x}"
        return error

    async def everything(self):
        """One task of each kind is right."""
        first, second, count = self.drawn(2 * BEATS)
        assert not await self.fetch(self.random.randrange(0, MEMORY, BYTES))
        assert not await self.signal(self.random.randrange(0, MEMORY, 4))
        assert not await self.copy(first, second, count)


@cocotb.test(timeout_time=30, timeout_unit="us")
@cocotb.parametrize(stall=[0.0, 0.4])
async def bytes_are_right(dut, stall):
    """Copies of all lengths and addresses, commands and words."""
    bench = Bench(dut, stall)
    await start(dut)
    for _ in range(6):
        await bench.everything()
    full = BEATS * UNIT.size
    assert not await bench.copy(0, MEMORY // 2 + ALIGNED, 2 * full + ALIGNED)
    assert not await bench.copy(MEMORY // 2 - ALIGNED, 0, 2 * full)


@cocotb.test(timeout_time=30, timeout_unit="us")
async def a_copy_has_long_bursts(dut):
    """Ranges that begin together are cut into bursts of the whole buffer."""
    bench = Bench(dut, 0.0, latency=1)
    await start(dut)
    cycles, full = 0, BEATS * UNIT.size
    cocotb.start_soon(bench.copy(full, 4 * full, 3 * full))
    while not bench.ended:
        await clock(dut)
        cycles += 1
    await clock(dut, 2)
    assert len(bench.monitor.asked) == len(bench.monitor.wrote) == 3
    assert cycles <= 3 * (2 * BEATS + 9 + 4) + 8


@cocotb.test(timeout_time=30, timeout_unit="us")
async def wrong_answers_are_errors(dut):
    """Of reads and writes, to any burst of a copy; responses of a wrong length; then all is right again."""
    bench = Bench(dut, 0.2)
    await start(dut)
    full = BEATS * UNIT.size
    for bad in (0, full, 2 * full):
        for address in (0, 4 * full):
            bench.memory.refused = [range(address + bad, address + bad + 1)]
            assert await bench.copy(0, 4 * full, 3 * full)
            bench.contents[4 * full:7 * full] = bench.memory.contents[4 * full:7 * full]
            assert bench.contents[4 * full:4 * full + bad] == bench.contents[:bad]
            bench.memory.refused = []
            await bench.everything()
    for address, task in ((64, bench.fetch), (68, bench.signal)):
        bench.memory.refused = [range(64, 128)]
        assert await task(address)
        bench.memory.refused = []
        await bench.everything()
    for change in (-1, 1, 5):
        bench.memory.lengths.append(change)
        if change > 0 or UNIT.size < BYTES:  # a response has a beat at least
            assert await bench.fetch(96)
        bench.memory.lengths.clear()
        bench.memory.lengths.append(change)
        before = bytes(bench.memory.contents)
        assert await bench.copy(0, full, full)
        assert bench.memory.contents == before
        await bench.everything()


@cocotb.test(timeout_time=30, timeout_unit="us")
@cocotb.parametrize(stall=[0.0, 0.4])
async def a_reset_leaves_nothing_behind(dut, stall):
    """At any moment: no end is told, the burst under way ends, and then all tasks are right."""
    bench = Bench(dut, stall)
    await start(dut)
    for _ in range(60):
        first, second, count = bench.drawn(2 * BEATS)
        task = bench.random.choice(list(MoverTask))
        bench.put(task, *{MoverTask.FETCH: (first,), MoverTask.SIGNAL: (5, second)}.get(task, (first, second, count)))
        await bench.jobs.drain()
        await clock(dut, bench.random.choice((1, 2, 3, 4, bench.random.randrange(1, 200))))
        before = len(bench.ended)
        dut.reset.value = 1
        await clock(dut)
        assert len(bench.ended) == before
        dut.reset.value = 0
        await until(dut, lambda: dut.idle.value)
        assert len(bench.ended) == before
        assert bench.memory.idle
        assert bench.monitor.ended
        written = bench.memory.contents[second:second + count]
        if task == MoverTask.COPY:
            bench.contents[second:second + count] = written
        elif task == MoverTask.SIGNAL:
            bench.contents[second:second + 4] = written[:4]
        assert bench.contents == bench.memory.contents
        if bench.random.random() < 0.2:
            await bench.everything()
    waits = cocotb.start_soon(bench.signal(8))
    dut.reset.value = 1
    await clock(dut, 4)
    dut.reset.value = 0
    assert not await waits
