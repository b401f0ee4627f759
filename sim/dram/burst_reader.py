# amaranth: UnusedElaboratable=no
"""Testbench of hw.dram.burst_reader: words in order whatever the memory does, bursts by the rules, wrong responses."""

import random
from collections import deque
from dataclasses import dataclass, replace

import cocotb
from amaranth.lib import data
from concord.hw.dram.axi import EDGE, burst, read_beat
from concord.hw.dram.burst_reader import BEATS, BurstReader, Range, words_of_beat
from concord.sim.dram.memory_models import group_packer, grouped, known
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import Sink, StreamSource, clock, every_cycle, start
from concord.spec.machine.config import preset_name

CONFIGURATIONS = ("tiny", "serial", "wide", "tiny_vector", "ulx3s", "speech")
TESTED = ("serial", "wide", "speech")
#: Bytes of the bus: words of 4, 8 and 8 bytes by themselves; groups of words of 4, 8 and 8 bytes.
BUSES = {"tiny": 16, "serial": 4, "wide": 8, "tiny_vector": 32, "ulx3s": 16, "speech": 4}
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "room.eq(held + length <= ", "new": "room.eq(1 | "},
    {"old": "Mux(before_edge < longest, before_edge, longest)", "new": "longest"},
    {"old": "| (self.r.p.last != ends)", "new": ""},
    {"old": "done.eq(self.r.p.last & (ends | over | self.draining))", "new": "done.eq(self.r.p.last & (ends | over))"},
    {"old": "beat.last.eq(ends & burst_.p.last)", "new": "beat.last.eq(burst_.p.last)"},
    {"old": "one.p.last.eq(last & final)", "new": "one.p.last.eq(last)"},
    {"old": "m.d.comb += [done.eq(ends), beat.data.eq(0)]", "new": "m.d.comb += done.eq(ends)"},
    {"old": "part.eq(Mux(whole, 0, part + 1))", "new": "part.eq(part)", "config": "serial"},
    {"old": "index.eq(Mux(begun, following, beat.skip))", "new": "index.eq(following)", "config": "tiny"},
    {"old": "ar.p.len.eq(length - 1), skip.eq(0)", "new": "ar.p.len.eq(length - 1)", "config": "tiny_vector"},
    {"old": "Mux(seen == 0, burst_.p.skip, 0)", "new": "burst_.p.skip", "config": "tiny_vector"},
    {"old": "Mux(ends, burst_.p.end, 0)", "new": "burst_.p.end", "config": "tiny_vector"},
    {"old": "Mux(final, end, 0)", "new": "end", "config": "tiny_vector"},
)


def component(config) -> BurstReader:
    """A reader on a bus that is wider than a word, narrower, or equal; the last presets have groups."""
    name = preset_name(config)
    return BurstReader(replace(config, dram_words=1 << 24, dram_bus=BUSES[name]), name in CONFIGURATIONS[3:])


UNIT = component(CONFIG)
BUS, SIZE = UNIT.bus, UNIT.size
RANGE, AR, R = Packer(Range), Packer(burst()), Packer(read_beat(BUS))
OUT, GROUP = Packer(data.StructLayout({"word": 8 * SIZE, "last": 1})), group_packer(UNIT.config)
BASE = 0x40000


def bytes_at(address: int, count: int) -> int:
    """What the memory holds, as an integer whose lowest byte lies at the address."""
    return int.from_bytes(bytes((k * 0x9E3779B1 >> 13 ^ k) & 255 for k in range(address, address + count)), "little")


@dataclass
class Fault:
    """What is wrong with a response: its number of beats, or the `resp` of its first beat."""

    beats: int = 0
    resp: int = 0


class Memory:
    """A memory that answers bursts in order, `latency` cycles after it took them, and holds the port to the rules.

    Args:
        latency: Cycles from a burst to its first beat.
        stall:   Probability of a cycle in which it takes no burst, or gives no beat.
        faults:  What is wrong with a response, by the number of its burst.
    """

    def __init__(self, dut, latency: int, stall: float, faults: dict[int, Fault] | None = None):
        self.dut, self.latency, self.stall, self.faults = dut, latency, stall, faults or {}
        self.random, self.cycle, self.asked, self.beats = random.Random(cocotb.RANDOM_SEED), 0, 0, deque()
        self.held, self.given, self.offered, self.bursts = None, 0, False, 0
        dut.ar__ready.value = dut.r__valid.value = 0
        every_cycle(dut, self.step)

    def step(self):
        """What happens at a rising edge."""
        dut, self.cycle = self.dut, self.cycle + 1
        if dut.ar__valid.value:
            payload = int(dut.ar__payload.value)
            assert self.held in (None, payload), "AR changed before it was taken"
            self.held = None if dut.ar__ready.value else payload
            if dut.ar__ready.value:
                self._take(AR.of(payload))
        else:
            assert self.held is None, "AR was withdrawn"
        if self.offered:
            assert dut.r__ready.value or self.faults, "R waits for the machine"
            if dut.r__ready.value:
                self.beats.popleft()
                self.given += 1
                self.offered = False
        dut.ar__ready.value = int(self.random.random() >= self.stall)
        if not self.offered:
            self.offered = bool(self.beats) and self.beats[0][0] <= self.cycle and self.random.random() >= self.stall
        dut.r__valid.value = int(self.offered)
        dut.r__payload.value = self.beats[0][1] if self.offered else self.random.getrandbits(8 * BUS + 3)

    def _take(self, asked: dict):
        beats, address = asked["len"] + 1, asked["addr"]
        assert address % BUS == 0
        assert address // EDGE == (address + beats * BUS - 1) // EDGE, "a burst crosses 4 KB"
        self.asked += beats
        assert self.asked - self.given <= BEATS, "more beats are asked for than have room"
        fault = self.faults.get(self.bursts, Fault())
        self.bursts += 1
        count = max(1, beats + fault.beats)
        for k in range(count):
            self.beats.append((self.cycle + self.latency, R.join({
                "data": bytes_at(address + k * BUS, BUS), "resp": fault.resp * (k == 0), "last": k == count - 1})))
        self.asked += count - beats


def wanted(ranges, last=lambda number: 1) -> list[dict]:
    """The words, or groups, of ranges; `last(number)` says whether the range of this number has `last`."""
    expected = []
    for number, (first, count) in enumerate(ranges):
        words = [bytes_at(BASE + k * SIZE, SIZE) for k in range(first, first + count)]
        if UNIT.groups:
            expected += grouped(first, words, words_of_beat(UNIT.config), last(number))
        else:
            expected += [{"word": word, "last": last(number) * (k == count - 1)} for k, word in enumerate(words)]
    return expected


async def received(words: Sink, count: int) -> list[dict]:
    """The next words, or groups."""
    return [known(GROUP.of(one)) if UNIT.groups else OUT.of(one) for one in await words.receive(count)]


def joined(first: int, count: int, tag: int = 0, last: int = 1) -> int:
    """The payload of a range."""
    return RANGE.join({"first": first, "count": count, "tag": tag, "last": last})


def drawn(chance, count: int) -> list[tuple[int, int]]:
    """Random ranges: short ones, long ones, and some that end at an edge."""
    return [(chance.randrange(3000), chance.choice((1, 2, 3, 5, 17, 66, 300))) for _ in range(count - 2)] + [
        (EDGE // SIZE - 3, 3), (2 * EDGE // SIZE - 1, 2)]


async def begin(dut, *, latency=3, stall=0.0, out=0.0, faults=None):
    """The streams of a reader, and its memory."""
    dut.base.value = BASE
    ranges, words = StreamSource(dut, "range"), Sink(dut, "o", stall=out)
    memory = Memory(dut, latency, stall, faults)
    await start(dut, "reset")
    return ranges, words, memory


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(latency=[2, 40, 400], stall=[(0.0, 0.0), (0.5, 0.0), (0.2, 0.6)])
async def words_come_in_order(dut, latency, stall):
    """Every word of random ranges; the port keeps to the rules, and nothing is left under way."""
    ranges, words, memory = await begin(dut, latency=latency, stall=stall[0], out=stall[1])
    chosen = drawn(random.Random(cocotb.RANDOM_SEED), 12)
    ranges.put(*(joined(first, count, 7, number % 3 > 0) for number, (first, count) in enumerate(chosen)))
    expected = wanted(chosen, lambda number: int(number % 3 > 0))
    assert await received(words, len(expected)) == expected
    await clock(dut, 3)
    assert dut.idle.value
    assert not memory.beats


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def asks_for_no_more_than_has_room(dut):
    """While nobody takes words, it asks for as many beats as it can keep, and loses none."""
    ranges, words, memory = await begin(dut, out=1.0)
    count = 3 * BEATS * BUS // SIZE
    ranges.put(joined(0, count))
    await clock(dut, 4 * BEATS)
    assert BEATS - 64 <= memory.asked <= BEATS + 2
    words.stall = 0.0
    expected = wanted([(0, count)])
    assert await received(words, len(expected)) == expected


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(latency=[40, 400])
async def one_beat_a_cycle(dut, latency):
    """Neighbouring tiles come at the rate of the bus, or of a word a cycle, once the latency is over."""
    ranges, words, _ = await begin(dut, latency=latency)
    count, pieces = 320, 12
    ranges.put(*(joined(k * count, count) for k in range(pieces)))
    number, cycles = pieces * len(wanted([(0, count)])), 0
    while len(words.queue) < number:
        await clock(dut)
        cycles += 1
    assert cycles <= latency + 40 + 1.1 * number * max(1, SIZE // BUS)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(fault=[Fault(resp=2), Fault(resp=3), Fault(beats=-1), Fault(beats=-5), Fault(beats=3)])
async def wrong_responses_are_reported(dut, fault):
    """The third burst is wrong: one error with the tag of its range, all words come, later ones are right."""
    ranges, words, _ = await begin(dut, faults={2: fault})
    count = 8 * max(1, BUS // SIZE)
    chosen = [(64 * k, count) for k in range(6)]
    errors = []
    every_cycle(dut, lambda: errors.append(int(dut.error.value) >> 1) if int(dut.error.value) & 1 else None)
    ranges.put(*(joined(first, number, 100 + k) for k, (first, number) in enumerate(chosen)))
    expected = wanted(chosen)
    found, each = await received(words, len(expected)), len(expected) // len(chosen)
    assert errors == [102]
    assert [one["last"] for one in found] == [one["last"] for one in expected]
    assert found[:2 * each] + found[3 * each:] == expected[:2 * each] + expected[3 * each:]
    if fault.beats >= 0:
        assert found == expected


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(latency=[2, 60], fault=[None, Fault(beats=-9)])
async def a_reset_leaves_nothing_behind(dut, latency, fault):
    """At any moment: responses under way are taken and lost, then new ranges give their words."""
    chance, faults = random.Random(cocotb.RANDOM_SEED), dict.fromkeys(range(0, 1000, 3), fault) if fault else {}
    ranges, words, memory = await begin(dut, latency=latency, stall=0.3, out=0.5, faults=faults)
    for number in range(25):
        chosen = drawn(chance, 5)
        ranges.put(*(joined(first, count, 1) for first, count in chosen))
        await clock(dut, chance.randrange(1, 120))
        ranges.task.cancel()
        words.task.cancel()
        dut.range__valid.value, dut.reset.value = 0, 1
        await clock(dut)
        dut.reset.value = 0
        await clock(dut)
        while not dut.idle.value:
            await clock(dut)
        assert not memory.beats
        assert memory.held is None
        memory.faults = {}
        ranges, words = StreamSource(dut, "range", seed=number), Sink(dut, "o", seed=number, stall=0.5)
        ranges.put(joined(5, 3, 2))
        expected = wanted([(5, 3)])
        assert await received(words, len(expected)) == expected
        memory.faults = {memory.bursts + k: one for k, one in faults.items()}
