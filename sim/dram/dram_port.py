# amaranth: UnusedElaboratable=no
"""Testbench of hw.dram.dram_port against the memory of cocotbext-axi, with a monitor of the rules of AXI."""

import random
from dataclasses import replace

import cocotb
from amaranth.lib import data
from cocotbext.axi import AxiBus, AxiRam
from concord.hw.dram.axi import EDGE
from concord.hw.dram.burst_reader import LONGEST, words_of_beat
from concord.hw.dram.dram_port import READERS, DramPort
from concord.hw.lib.outside import Failure, Range
from concord.sim.dram.memory_models import group_packer, grouped, known
from concord.sim.drivers.axi_monitor import AxiMonitor
from concord.sim.drivers.axi_stream import pauses
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import Sink, StreamSource, clock, every_cycle, start, until

TESTED = ("serial", "wide")
BUSES = {4: 16, 8: 4}  #: Bytes of the bus by those of a word: a wider one and a narrower one; equal for others.
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "tiles.ar.valid & (~words.ar.valid | ~id_)", "new": "tiles.ar.valid"},
    {"old": "with m.If(free):", "new": "with m.If(1):"},
    {"old": "(self.m_axi_rid == number) &", "new": ""},
    {"old": "w.ready.eq(self.m_axi_wready)", "new": "w.ready.eq(1)"},
    {"old": "kind.eq(INCR)", "new": "kind.eq(0)"},
    {"old": "unit.error.valid & (~one.valid | free)", "new": "unit.error.valid & ~self.error.valid"},
    {"old": "late, self.error.valid, *(one.valid for one in kept)", "new": "late, self.error.valid"},
    {"old": "for one in units).all()", "new": "for one in units).any()"},
    {"old": "[one.base.eq(self.base), one.reset.eq(self.reset)]", "new": "one.base.eq(self.base)"},
)


def component(config) -> DramPort:
    """A port whose bus is wider than a word, narrower, or equal; that of the machine if it has Dram."""
    if config.dram_words:
        return DramPort(config)
    size = 2 * config.mfu_lanes
    bus = 8 if config.native_dim == 16 else BUSES[size]
    return DramPort(replace(config, dram_words=1 << 24, dram_bus=bus))


UNIT = component(CONFIG)
BUS, SIZE = UNIT.config.dram_bus, 2 * UNIT.config.mfu_lanes
RANGE, ERROR = Packer(Range), Packer(Failure)
OUT, GROUP = Packer(data.StructLayout({"word": 8 * SIZE, "last": 1})), group_packer(UNIT.config)
BASE, BYTES = 0x40000, 1 << 19
WRITES = max(512, 4 * EDGE // SIZE)  #: First word of those that are written; words before it are read.


class Bench:
    """The memory, the streams and the model of a test.

    Args:
        stall: Probability of a pause on each of the five channels.
        into:  Probability of a cycle in which no word comes, or none is taken.
    """

    def __init__(self, dut, stall: float, into: float):
        dut.base.value = BASE
        self.dut, self.stall, self.random, self.dones = dut, stall, random.Random(cocotb.RANDOM_SEED), 0
        self.monitor = AxiMonitor(dut, BUS)
        self.ram = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, size=BYTES)
        self.contents = bytearray(self.random.randbytes(BYTES))
        self.ram.write(0, bytes(self.contents))
        write, read = self.ram.write_if, self.ram.read_if
        for part in (write, read):
            part.log.setLevel("ERROR")
        channels = (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel)
        for number, channel in enumerate(channels if stall else (), cocotb.RANDOM_SEED):
            channel.set_pause_generator(pauses(number, stall))
        self.errors, self.idle = [], False
        self.streams(into)
        every_cycle(dut, self._pulses)

    def streams(self, into: float, seed: int | None = None):
        """Streams to and from the port."""
        self.ranges = {name: StreamSource(self.dut, f"{name}_range", seed=seed) for name in (*READERS, "write")}
        self.sinks = {name: Sink(self.dut, name, seed=seed, stall=into) for name in READERS}
        self.words = StreamSource(self.dut, "write_word", seed=seed, stall=into)

    def _pulses(self):
        error = ERROR.of(int(self.dut.error.value))
        self.errors += [error["tag"]] * error["valid"]
        idle, self.idle = self.idle, bool(self.dut.idle.value)
        assert not (error["valid"] and (idle or self.idle)), "the port is idle before it has given its errors"
        self.dones += int(self.dut.write_done.value)

    def drawn(self, count: int, below: int) -> list[tuple[int, int]]:
        """Ranges of words before the word `below`."""
        lengths = (self.random.choice((1, 2, 3, 5, 17, 66, 300)) for _ in range(count))
        return [(self.random.randrange(below - length), length) for length in lengths]

    def read(self, name: str, chosen, tag: int = 1) -> list[dict]:
        """Ask for ranges. Returns the words, or groups, that must come; every second range has `last`."""
        self.ranges[name].put(*(RANGE.join({"first": first, "count": count, "tag": tag, "last": number % 2})
                                for number, (first, count) in enumerate(chosen)))
        expected = []
        for number, (first, count) in enumerate(chosen):
            addresses, last = range(BASE + first * SIZE, BASE + (first + count) * SIZE, SIZE), number % 2
            words = [int.from_bytes(self.contents[address:address + SIZE], "little") for address in addresses]
            if name == "tiles":
                expected += grouped(first, words, words_of_beat(UNIT.config), last)
            else:
                expected += [{"word": word, "last": last * (k == count - 1)} for k, word in enumerate(words)]
        return expected

    def write(self, chosen, tag: int = 2):
        """Write ranges of random words, whose first one is WRITES, into the memory and the model; all have `last`."""
        for first, count in chosen:
            words, address = [self.random.randbytes(SIZE) for _ in range(count)], BASE + (WRITES + first) * SIZE
            self.contents[address:address + count * SIZE] = b"".join(words)
            self.words.put(*(int.from_bytes(word, "little") for word in words))
            self.ranges["write"].put(RANGE.join({"first": WRITES + first, "count": count, "tag": tag, "last": 1}))

    async def receive(self, name: str, expected: list[dict]):
        """Compare the words, or groups, of a reader."""
        found = await self.sinks[name].receive(len(expected))
        assert [known(GROUP.of(one)) if name == "tiles" else OUT.of(one) for one in found] == expected

    def cancel(self):
        """Stop all streams."""
        for one in (*self.ranges.values(), *self.sinks.values(), self.words):
            one.task.cancel()
            if isinstance(one, StreamSource):
                one.valid.value = 0
            else:
                one.ready.value = 0


async def begin(dut, stall: float = 0.0, into: float = 0.0) -> Bench:
    """A bench after reset."""
    bench = Bench(dut, stall, into)
    await start(dut, "reset")
    return bench


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(stall=[(0.0, 0.0), (0.5, 0.0), (0.2, 0.6)])
async def reads_and_writes_go_together(dut, stall):
    """Random ranges of all three: every word that is read, every byte of the memory, and no beat without a strobe."""
    bench = await begin(dut, *stall)
    expected = {name: bench.read(name, bench.drawn(14, WRITES)) for name in READERS}
    chosen = bench.drawn(14, WRITES)
    bench.write(chosen)
    for name in READERS:
        await bench.receive(name, expected[name])
    await until(dut, lambda: bench.dones == len(chosen))
    await clock(dut, 3)
    assert dut.idle.value
    assert bench.ram.read(0, BYTES) == bytes(bench.contents)
    assert bench.monitor.written == SIZE * sum(count for _, count in chosen)
    assert bench.monitor.ended
    assert not bench.errors


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def readers_take_turns(dut):
    """While both have bursts, they alternate."""
    bench = await begin(dut)
    count = 12 * LONGEST * BUS // SIZE
    expected = {name: bench.read(name, [(0, count)]) for name in READERS}
    for name in READERS:
        await bench.receive(name, expected[name])
    turns = bench.monitor.asked[4:-4]
    assert set(zip(turns, turns[1:], strict=False)) == {(0, 1), (1, 0)}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def errors_of_all_three_come(dut):
    """A memory that refuses everything: an error for each access, with the tag of its range; then it is right again."""
    bench = await begin(dut)
    parts = {bench.ram.write_if: "_write", bench.ram.read_if: "_read"}
    for part, name in parts.items():
        setattr(part, name, _refuse)
    for number, name in enumerate(READERS):
        bench.read(name, [(0, 1)], tag=10 + number)
    bench.words.put(5)
    bench.ranges["write"].put(RANGE.join({"first": WRITES, "count": 1, "tag": 12, "last": 1}))
    await until(dut, lambda: bench.dones)
    await clock(dut, 40)
    assert set(bench.errors) == {10, 11, 12}  # reads have one for each beat
    count = len(bench.errors)
    for name in READERS:
        await bench.sinks[name].receive(1)
    for part, name in parts.items():
        delattr(part, name)
    for name in READERS:
        expected = bench.read(name, [(8, 20)])
        await bench.receive(name, expected)
    assert len(bench.errors) == count


async def _refuse(*_):
    raise ValueError("this memory refuses all accesses")


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.4])
async def a_reset_leaves_nothing_behind(dut, stall):
    """At any moment: bursts under way end, then all three do new ranges."""
    bench = await begin(dut, stall, 0.3)
    for number in range(20):
        for name in READERS:
            bench.read(name, bench.drawn(4, WRITES))
        bench.write(bench.drawn(4, WRITES))
        await clock(dut, bench.random.randrange(1, 150))
        bench.cancel()
        dut.reset.value = 1
        await clock(dut)
        dut.reset.value = 0
        await clock(dut, 2)
        await until(dut, lambda: dut.idle.value)
        assert bench.monitor.ended
        bench.contents[:] = bench.ram.read(0, BYTES)
        bench.streams(0.3, number)
        expected, bench.dones = {name: bench.read(name, [(5, 3), (70, 30)]) for name in READERS}, 0
        bench.write([(5, 3), (70, 30)])
        for name in READERS:
            await bench.receive(name, expected[name])
        await until(dut, lambda: bench.dones == 2)
        assert bench.ram.read(0, BYTES) == bytes(bench.contents)
