# amaranth: UnusedElaboratable=no
"""Testbench of hw.dram.burst_writer: the bytes of words where they belong, bursts by the rules, wrong answers."""

import random
from collections import deque
from dataclasses import dataclass, replace

import cocotb
from concord.hw.dram.axi import EDGE, burst, write_beat
from concord.hw.dram.burst_reader import LONGEST
from concord.hw.dram.burst_writer import BUFFER, ROOM, BurstWriter
from concord.hw.lib.outside import Failure, Range
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import StreamSource, clock, every_cycle, start, until

TESTED = ("tiny", "wide")
BUSES = {4: 16, 8: 4}  #: Bytes of the bus by those of a word: a wider one and a narrower one; equal for others.
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "(waiting >= self.length) &", "new": ""},
    {"old": "fitting.eq(most - at[:exact_log2(most)])", "new": "fitting.eq(most)"},
    {"old": "(self.room - taken +", "new": "(self.room +"},
    {"old": "one.p.last.eq(last & final)", "new": "one.p.last.eq(last)"},
    {"old": "answered.eq(self.b.valid & ended.any())", "new": "answered.eq(self.b.valid)"},
    {"old": "self.done.eq(answered & oldest.p.last & ~self.draining", "new": "self.done.eq(answered & oldest.p.last"},
    {"old": "(here & ~self.draining)", "new": "here"},
    {"old": "(~self.draining).replicate(self.bus)", "new": "(~C(0, 1)).replicate(self.bus)", "config": "serial"},
    {"old": "m.d.sync += there.eq(0)", "new": "pass", "config": "serial"},
)


def component(config) -> BurstWriter:
    """A writer on a bus that is wider than a word, narrower, or equal; that of the machine if it has Dram."""
    if config.dram_words:
        return BurstWriter(config)
    size = 2 * config.mfu_lanes
    bus = 8 if config.native_dim == 16 else BUSES[size]
    return BurstWriter(replace(config, dram_words=1 << 24, dram_bus=bus))


UNIT = component(CONFIG)
BUS, SIZE = UNIT.bus, UNIT.size
RANGE, AW, W, ERROR = Packer(Range), Packer(burst()), Packer(write_beat(BUS)), Packer(Failure)
BASE = 0x40000
STREAMS = ("aw", "w")


@dataclass
class Burst:
    """A burst that was seen on AW, and the bytes that it must write, by address."""

    address: int
    beats: int
    bytes: dict[int, int]
    tag: int
    last: bool
    given: int = 0
    lost: bool = False


class Memory:
    """A memory that answers bursts in order, `latency` cycles after it has them, and holds the port to the rules.

    Args:
        latency: Cycles from the last beat of a burst to its answer.
        stall:   Probability of a cycle in which AW, or W, is not taken, or no answer is given.
        faults:  `resp` of answers, by the number of the burst.
    """

    def __init__(self, dut, latency: int = 3, stall: float = 0.0, faults: dict[int, int] | None = None):
        self.dut, self.latency, self.stall, self.faults = dut, latency, stall, faults or {}
        self.random, self.cycle, self.held = random.Random(cocotb.RANDOM_SEED), 0, dict.fromkeys(STREAMS)
        self.words, self.claimed, self.arrived = deque(), 0, 0  # expected words, bytes of bursts, words that were taken
        self.bursts, self.beats, self.waiting = deque(), deque(), 0  # not answered, without all beats, not taken on AW
        self.answers, self.offered, self.pulses = deque(), None, (0, 0, None)
        self.bytes, self.numbers, self.dones, self.errors = {}, 0, 0, []
        dut.aw__ready.value = dut.w__ready.value = dut.b__valid.value = 0
        every_cycle(dut, self.step)

    def expect(self, first: int, words: list[int], tag: int, last: int):
        """The words of a range will come."""
        self.words += [(BASE + (first + k) * SIZE, word, tag, bool(last) and k == len(words) - 1)
                       for k, word in enumerate(words)]

    def forget(self):
        """The machine is being reset: what no burst has is lost, and bursts may lack bytes."""
        self.words.clear()
        self.claimed = self.arrived = 0
        for one in self.bursts:
            one.lost = True

    def surplus(self):
        """Give an answer that is of no burst."""
        self.answers.append((0, 0, None))

    def step(self):
        """What happens at a rising edge."""
        dut, self.cycle = self.dut, self.cycle + 1
        if dut.rst.value:
            return
        self._pulses()
        if dut.i__valid.value and int(dut.room.value):
            assert dut.i__ready.value, "a word that has room is not taken"
        self.arrived += int(dut.i__valid.value and dut.i__ready.value)
        if self._stands("aw"):
            self.waiting -= int(dut.aw__ready.value)
        if self._stands("w"):
            self._beat(W.of(int(dut.w__payload.value)), int(dut.w__ready.value))
        if dut.reset.value:
            self.forget()
        for name in STREAMS:
            getattr(dut, f"{name}__ready").value = int(self.random.random() >= self.stall)
        there = self.answers and self.answers[0][0] <= self.cycle and not (
            self.waiting and self.answers[0][2] is self.bursts[-1])  # not taken on AW
        self.offered = self.answers.popleft() if there and self.random.random() >= self.stall else None
        dut.b__valid.value = int(self.offered is not None)
        dut.b__payload.value = self.offered[1] if self.offered else self.random.getrandbits(2)

    def _pulses(self):
        """`done` and `error` show the answer before, and nothing else."""
        dut, error = self.dut, ERROR.of(int(self.dut.error.value))
        done, wrong, tag = self.pulses
        assert (int(dut.done.value), error["valid"]) == (done, wrong)
        assert not wrong or tag in (None, error["tag"])
        self.dones += done
        self.errors += [error["tag"]] * wrong
        self.pulses = (0, 0, None)
        if self.offered:
            _, resp, one = self.offered
            assert dut.b__ready.value, "B waits for the machine"
            if one:
                self.bursts.popleft()
            if not dut.reset.value and not (one and one.lost):
                self.pulses = (int(one is not None and one.last), int(not one or resp >> 1), one and one.tag)

    def _stands(self, name: str) -> bool:
        """Whether a stream is valid; its payload stands until it is taken. A new one on AW becomes a burst."""
        if not getattr(self.dut, f"{name}__valid").value:
            assert self.held[name] is None, f"{name} was withdrawn"
            return False
        payload = int(getattr(self.dut, f"{name}__payload").value)
        assert self.held[name] in (None, payload), f"{name} changed before it was taken"
        if name == "aw" and self.held[name] is None:
            self._begin(AW.of(payload))
        self.held[name] = None if getattr(self.dut, f"{name}__ready").value else payload
        return True

    def _begin(self, asked: dict):
        address, beats = asked["addr"], asked["len"] + 1
        end, found, last, tag = address + beats * BUS, {}, False, None
        assert address % BUS == 0
        assert address // EDGE == (end - 1) // EDGE, "a burst crosses 4 KB"
        assert beats <= LONGEST
        while self.words and address <= self.words[0][0] < end and tag in (None, self.words[0][2]) and not last:
            first, word, tag, last = self.words.popleft()
            found |= {first + k: word >> 8 * k & 255 for k in range(SIZE)}
        self.claimed += len(found)
        assert found, "a burst has no word"
        assert min(found) - address < BUS, "a burst begins with a beat that has no word"
        assert 0 <= end - max(found) - 1 < BUS, "a burst is too long, or too short"
        assert self.claimed <= self.arrived * SIZE, "a burst is asked for before its data are there"
        self.bursts.append(Burst(address, beats, found, tag, last))
        self.beats.append(self.bursts[-1])
        self.waiting += 1

    def _beat(self, beat: dict, taken: int):
        assert self.beats, "a beat has no burst"
        one = self.beats[0]
        here = one.address + one.given * BUS
        assert beat["last"] == (one.given == one.beats - 1)
        written = {here + k: beat["data"] >> 8 * k & 255 for k in range(BUS) if beat["strb"] >> k & 1}
        wanted = {k: one.bytes[k] for k in range(here, here + BUS) if k in one.bytes}
        assert written == wanted or (one.lost and written.items() <= wanted.items())
        if taken:
            self.bytes |= written
            one.given += 1
        if one.given == one.beats:
            self.beats.popleft()
            self.answers.append((self.cycle + self.latency, self.faults.get(self.numbers, 0), one))
            self.numbers += 1


async def begin(dut, *, into=0.0, **options):
    """The streams of a writer, and its memory."""
    dut.base.value = BASE
    ranges, words = StreamSource(dut, "range"), StreamSource(dut, "i", stall=into)
    memory = Memory(dut, **options)
    await start(dut, "reset")
    return ranges, words, memory


def put(streams, chosen, *, tag: int = 7, last=lambda number: 1) -> dict[int, int]:
    """Give ranges, each with the tag after the one before, and their words. Returns the bytes that they write."""
    ranges, words, memory = streams
    chance, found = random.Random(repr(chosen)), {}
    for number, (first, count) in enumerate(chosen):
        drawn_words = [chance.getrandbits(8 * SIZE) for _ in range(count)]
        memory.expect(first, drawn_words, tag + number, last(number))
        words.put(*drawn_words)
        ranges.put(RANGE.join({"first": first, "count": count, "tag": tag + number, "last": last(number)}))
        found |= {BASE + (first + k) * SIZE + n: word >> 8 * n & 255
                  for k, word in enumerate(drawn_words) for n in range(SIZE)}
    return found


def drawn(chance, count: int) -> list[tuple[int, int]]:
    """Random ranges: short ones, long ones, and some that end at an edge."""
    return [(chance.randrange(3000), chance.choice((1, 2, 3, 5, 17, 66, 600))) for _ in range(count - 2)] + [
        (EDGE // SIZE - 3, 3), (2 * EDGE // SIZE - 1, 2)]


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(latency=[1, 40, 400], stall=[(0.0, 0.0), (0.5, 0.0), (0.2, 0.6)])
async def words_are_written(dut, latency, stall):
    """Every byte of random ranges, and no other; each last range is done once, and all room comes back."""
    ranges, words, memory = await begin(dut, latency=latency, stall=stall[0], into=stall[1])
    chosen = drawn(random.Random(cocotb.RANDOM_SEED), 12)
    bytes_ = put((ranges, words, memory), chosen, last=lambda number: int(number % 3 > 0))
    await until(dut, lambda: memory.dones == 8)
    await clock(dut)
    assert memory.bytes == bytes_
    assert dut.idle.value
    assert not memory.bursts
    assert not memory.waiting
    assert int(dut.room.value) == ROOM


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def words_may_come_first(dut):
    """Words without a range fill the buffer as far as it has room; the range that comes then finds them."""
    ranges, words, memory = await begin(dut)
    ranges.stall = 1.0
    bytes_ = put((ranges, words, memory), [(5, BUFFER + 100)])
    await clock(dut, BUFFER + 50)
    assert ROOM <= memory.arrived <= ROOM + 1
    assert not memory.numbers
    ranges.stall = 0.0
    await until(dut, lambda: memory.dones)
    assert memory.bytes == bytes_


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(latency=[1, 100])
async def one_beat_a_cycle(dut, latency):
    """Neighbouring ranges go at the rate of the bus, or of a word a cycle, while answers are under way."""
    ranges, words, memory = await begin(dut, latency=latency)
    count, pieces = 320, 12
    put((ranges, words, memory), [(k * count, count) for k in range(pieces)])
    cycles = await until(dut, lambda: memory.dones == pieces)
    first = UNIT.longest * UNIT.words  # pieces of the first burst, which must be there
    assert cycles <= latency + 40 + first + 1.05 * count * pieces * max(1, SIZE // BUS)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def short_ranges_overlap(dut):
    """While a range is cut, the words of ranges before it are written: five words a range are enough."""
    ranges, words, memory = await begin(dut)
    pieces = 200
    put((ranges, words, memory), [(8 * k, 5) for k in range(pieces)])
    cycles = await until(dut, lambda: memory.dones == pieces)
    assert cycles <= 50 + 5 * pieces * max(1, SIZE // BUS)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(resp=[1, 2, 3], stall=[0.0, 0.4])
async def wrong_answers_are_reported(dut, resp, stall):
    """The third burst fails: one error with the tag of its range, unless the answer is EXOKAY."""
    ranges, words, memory = await begin(dut, stall=stall, faults={2: resp})
    put((ranges, words, memory), [(64 * k, min(8, LONGEST * BUS // SIZE)) for k in range(6)], tag=100)  # bursts
    await until(dut, lambda: memory.dones == 6)
    assert memory.errors == [102] * (resp >> 1)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def surplus_answers_are_reported(dut):
    """An answer before the last beat of its burst, or without a burst, is an error, and answers nothing."""
    ranges, words, memory = await begin(dut)
    memory.surplus()
    await until(dut, lambda: len(memory.errors) == 1)
    memory.stall = 1.0
    put((ranges, words, memory), [(3, 5)], tag=55)
    await clock(dut, 60)
    memory.surplus()
    memory.stall = 0.0
    dut.w__ready.value = 0
    await until(dut, lambda: memory.dones == 1)
    assert len(memory.errors) == 2
    put((ranges, words, memory), [(3, 5), (9, 2)], tag=66)
    await until(dut, lambda: memory.dones == 3)
    assert len(memory.errors) == 2


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(latency=[1, 60], stall=[0.0, 0.5])
async def a_reset_leaves_nothing_behind(dut, latency, stall):
    """At any moment: bursts under way end, then new ranges are written."""
    chance = random.Random(cocotb.RANDOM_SEED)
    ranges, words, memory = await begin(dut, latency=latency, stall=stall, into=0.2)
    memory.faults = dict.fromkeys(range(0, 10000, 3), 2)
    for number in range(40):
        put((ranges, words, memory), drawn(chance, 5))
        await clock(dut, chance.randrange(1, 150))
        ranges.task.cancel()
        words.task.cancel()
        dut.range__valid.value = dut.i__valid.value = 0
        dut.reset.value = 1
        await clock(dut)
        dut.reset.value = 0
        await clock(dut)
        assert int(dut.room.value) >= ROOM - 1
        ranges, words = StreamSource(dut, "range", seed=number), StreamSource(dut, "i", seed=number, stall=0.3)
        memory.bytes, memory.dones = {}, 0
        bytes_ = put((ranges, words, memory), [(3000 + 7, 3), (10, 70)])
        await until(dut, lambda: memory.dones == 2)
        assert bytes_.items() <= memory.bytes.items()
        await clock(dut, 2)
        assert dut.idle.value
        assert not memory.bursts
