"""Models of memories beside units that move words and entries: the port of Dram, and VectorRf."""

import random
from collections import deque

import cocotb
import numpy as np
from amaranth.lib import data
from concord.hw.dram.burst_reader import Range, words_of_beat
from concord.hw.lib.payloads import ENTRY_READ, entry, entry_reads, word
from concord.sim.drivers.bench import CONFIG, Packer, pack, stored, unpack
from concord.sim.drivers.stream import Sink, StreamSource
from concord.sim.stimulus.random_values import legal
from concord.spec.machine.config import Config
from concord.spec.machine.timing import mfu_pipeline

FORMAT, ENTRY = CONFIG.activations, entry(CONFIG)
REQUEST, RANGE = Packer(entry_reads(CONFIG).members["request"].shape), Packer(Range)
WORDS = Packer(data.StructLayout({"word": word(CONFIG).size, "last": 1}))


def group_packer(config: Config) -> Packer:
    """Payloads of groups, as `hw.dram.burst_reader.group` has them, with words as integers."""
    count = words_of_beat(config)
    words = data.ArrayLayout(16 * config.mfu_lanes, count)
    return Packer(data.StructLayout({"words": words, "count": range(count + 1), "last": 1}))


def grouped(first: int, words: list[int], size: int, last: int = 0) -> list[dict]:
    """A range of Dram as the fields of its groups: the word `first` and those behind it, `size` words to a beat."""
    groups, at = [], 0
    while at < len(words):
        end = min(len(words), at + size - (first + at) % size)
        groups.append({"words": words[at:end], "count": end - at, "last": last * (end == len(words))})
        at = end
    return groups


def known(fields: dict) -> dict:
    """What the fields of a group say: without the words that mean nothing."""
    return fields | {"words": list(fields["words"].values())[:fields["count"]]}


GROUP = group_packer(CONFIG)


class EntryMemory:
    """VectorRf at the port `entries` of a unit: entries that are drawn when they are read.

    Args:
        stall: Probability of a cycle in which it grants no read.
    """

    def __init__(self, dut, stall: float):
        self.dut, self.stall, self.random = dut, stall, random.Random(f"entries {cocotb.RANDOM_SEED}")
        self.rng, self.contents = np.random.default_rng(cocotb.RANDOM_SEED), {}
        self.reading = deque([None] * (ENTRY_READ - 1))
        dut.entries__grant.value = 0

    def entry(self, address: int) -> tuple[np.ndarray, int]:
        """Mantissas int64[N] and the stored exponent of an entry."""
        if address not in self.contents:
            mantissas = legal(self.rng.integers(FORMAT.lowest, FORMAT.highest + 1, CONFIG.native_dim), FORMAT)
            self.contents[address] = mantissas, int(self.rng.integers(1 << FORMAT.exponent_bits))
        return self.contents[address]

    def step(self) -> bool:
        """What happens at a rising edge. Returns whether a read is asked for."""
        dut, request = self.dut, REQUEST.of(int(self.dut.entries__request.value))
        self.reading.append(request["address"] if request["valid"] and dut.entries__grant.value else None)
        due, payload = self.reading.popleft(), self.random.getrandbits(ENTRY.size)
        if due is not None:
            mantissas, exponent = self.entry(due)
            payload, = pack(ENTRY, {"mantissas": stored(mantissas, FORMAT)[None], "exponent": np.array([exponent])})
        dut.entries__entry.value, dut.entries__grant.value = payload, int(self.random.random() >= self.stall)
        return bool(request["valid"])


class Dram:
    """Words of Dram, which are drawn when they are read first."""

    def __init__(self):
        self.random, self.contents = random.Random(f"dram {cocotb.RANDOM_SEED}"), {}

    def word(self, address: int) -> int:
        """The payload of a word."""
        return self.contents.setdefault(address, self.random.getrandbits(16 * CONFIG.mfu_lanes))

    def numbers(self, first: int, count: int) -> np.ndarray:
        """Words as uint16[count, M]."""
        return unpack(word(CONFIG), [self.word(first + k) for k in range(count)]).astype(np.uint16)


class Port:
    """The port of Dram: its three sequences of ranges, each in order, after random latencies.

    Args:
        stall:   Probability of a cycle in which a stream stalls.
        latency: Most cycles from a range to its words, and from the last word of a range to its answer.
    """

    def __init__(self, dut, stall: float, latency: int):
        self.dut, self.latency, self.random = dut, latency, random.Random(f"port {cocotb.RANDOM_SEED}")
        self.dram, self.cycle, self.room = Dram(), 0, 0  # `room`: words that it took without a stall, a cycle ago
        self.sinks = {name: Sink(dut, name, stall=stall) for name in (
            "words_range", "tiles_range", "write_range", "write_word")}
        self.given = {name: StreamSource(dut, name, stall=stall) for name in ("words", "tiles")}
        self.asked = {name: deque() for name in self.given}  # pairs of the cycle of its words, and a range
        self.stores, self.answers = deque(), deque()  # ranges, and the words that they have; those whose answer is due
        dut.write_done.value = dut.write_room.value = 0

    @property
    def idle(self) -> bool:
        """Whether all ranges have their words, and all writes are answered."""
        return not (self.stores or self.answers or any(self.asked.values()))

    def serve(self):
        """What happens at a rising edge: take ranges, and give words and answers."""
        self.cycle += 1
        for name, asked in self.asked.items():
            asked += [(self._due(), RANGE.of(one)) for one in _taken(self.sinks[f"{name}_range"])]
            if asked and asked[0][0] <= self.cycle:
                _, one = asked.popleft()
                words = [self.dram.word(one["first"] + k) for k in range(one["count"])]
                self.given[name].put(*self._payloads(name, one, words))
        self._write()
        room, enough = int(self.dut.write_room.value), mfu_pipeline(CONFIG)
        assert self.room > enough or not self.dut.room.value, "words inside the multi-function units lack room"
        assert self.room < enough + 32 or self.dut.room.value
        self.room = room
        self.dut.write_room.value = self.random.choice((0, enough, enough + 1, enough + 40, 500))

    def _payloads(self, name: str, one: dict, words: list[int]) -> list[int]:
        """What comes of a range: words, or groups of them for tiles."""
        if name == "tiles":
            return list(map(GROUP.join, grouped(one["first"], words, words_of_beat(CONFIG), one["last"])))
        ends = [0] * (len(words) - 1) + [one["last"]]
        return [WORDS.join({"word": word_, "last": last}) for word_, last in zip(words, ends, strict=True)]

    def _write(self):
        """Take ranges to write and their words, and answer."""
        self.stores += [(RANGE.of(one), []) for one in _taken(self.sinks["write_range"])]
        while self.stores and self.sinks["write_word"].queue:
            one, words = self.stores[0]
            words.append(self.sinks["write_word"].queue.popleft())
            if len(words) == one["count"]:
                self.answers.append((self._due(), *self.stores.popleft()))
        done = 0
        if self.answers and self.answers[0][0] <= self.cycle:
            _, one, words = self.answers.popleft()
            self.dram.contents |= {one["first"] + k: value for k, value in enumerate(words)}
            done = one["last"]
        self.dut.write_done.value = done

    def _due(self) -> int:
        return self.cycle + self.random.randint(1, self.latency)


def _taken(sink: Sink) -> list[int]:
    """The payloads that a sink has."""
    payloads = list(sink.queue)
    sink.queue.clear()
    return payloads
