"""What is around a unit that reads or writes: the rules by which it waits for older chains, pipelines and memories."""

import random
from collections import deque

from amaranth.lib import data
from concord.hw.lib.jobs import ENTRY_WRITERS, TICKET, entry_progress, entry_writers, progress
from concord.hw.lib.payloads import VECTOR_READ, address_bits, word
from concord.hw.schedule.address_generator import read_request
from concord.hw.schedule.writeback import write_request
from concord.sim.drivers.bench import Packer
from concord.sim.drivers.stream import every_cycle
from concord.spec.isa.chain import Chain
from concord.spec.isa.memories import VRFS, depth
from concord.spec.machine.config import Config

_NUMBERS = 1 << TICKET  #: Number of tickets; they are counted modulo this number.
_MEMORIES = range(len(VRFS))


def ahead(ticket: int, done: int) -> int:
    """Number of chains up to `ticket` that are not done when `done` is the last one done; 0 or less if all are done."""
    distance = (ticket - done) % _NUMBERS
    return distance - _NUMBERS if distance >= _NUMBERS // 2 else distance


def waiting(wait: dict, done: int) -> bool:
    """Whether the chain of a `hw.lib.jobs.Wait` is not done yet."""
    return bool(wait["valid"]) and ahead(wait["ticket"], done) > 0


def blocked(dependency: dict, progress: dict, memory: int, address: int) -> bool:
    """Whether the older chain of a `hw.lib.jobs.dependency` may still write the word at `address`."""
    if not dependency["valid"] or not dependency["lo"] <= address < dependency["hi"]:
        return False
    left = ahead(dependency["ticket"], progress["done"])
    return left > 1 or (left == 1 and address >= progress["low"][memory])


def entry_blocked(writers: dict, older: int, progress: dict, address: int) -> bool:
    """Whether a chain up to ticket `older` may still write the entry at `address`, as `hw.lib.jobs` decides it."""
    for writer in writers.values():
        left = ahead(writer["ticket"], progress["done"])
        inside = writer["lo"] <= address < writer["hi"] and not (left == 1 and address < progress["low"])
        if left > 0 and ahead(older, writer["ticket"]) >= 0 and inside:
            return True
    return False


class Pipeline:
    """The progress that a writing pipeline reports; it advances at random.

    Attributes:
        state: The fields of `hw.lib.jobs.progress`.
    """

    def __init__(self, config: Config, seed):
        self.random, self.shape = random.Random(f"pipeline {seed}"), Packer(progress(config))
        self.top = (1 << address_bits(config)) - 1
        self.state = {"done": self.random.randrange(_NUMBERS), "iteration": 0, "low": dict.fromkeys(_MEMORIES, 0)}

    @property
    def payload(self) -> int:
        return self.shape.join(self.state)

    def advance(self, chance: float = 0.3):
        """Write a word, end an iteration or a chain, or do nothing."""
        state = self.state
        if self.random.random() >= chance:
            return
        kind = self.random.random()
        if kind < 0.1:
            state["done"] = (state["done"] + 1) % _NUMBERS
            state["iteration"], state["low"] = 0, dict.fromkeys(_MEMORIES, 0)
        elif kind < 0.2:
            state["iteration"] += 1
        else:
            for memory, low in state["low"].items():
                state["low"][memory] = min(low + self.random.choice((0, 1, 1, 3)), self.top)

    def wait(self, most: int = 2) -> dict:
        """A `hw.lib.jobs.Wait` for a chain that is done or soon will be."""
        ticket = (self.state["done"] + self.random.randint(-2, most)) % _NUMBERS
        return {"valid": self.random.getrandbits(1), "ticket": ticket}

    def dependency(self, near: int) -> dict:
        """A `hw.lib.jobs.dependency` on a chain that is done or soon will be, for addresses around `near`."""
        lo = max(0, near + self.random.randint(-4, 6))
        return self.wait() | {"lo": min(lo, self.top), "hi": min(lo + self.random.randint(1, 8), self.top)}


class Pipelines(dict[str, Pipeline]):
    """The two pipelines that write vector memories, at the ports `mfu` and `copy` of `dut`, which reads them."""

    def __init__(self, dut, config: Config, seed):
        super().__init__({name: Pipeline(config, f"{name} {seed}") for name in ("mfu", "copy")})
        self.dut = dut
        dut.mfu.value = dut.copy.value = 0

    def reader(self, chain: Chain) -> dict:
        """The `hw.lib.jobs.reader` of the source of a chain, which depends on older writes near it."""
        return {"valid": 1, "lo": chain.source.a, "inc": chain.source.inc,
                **{name: pipe.dependency(chain.source.a) for name, pipe in self.items()}}

    def blocked(self, source: dict, memory: int, address: int) -> bool:
        """Whether the word at `address` may still be written by a chain that the reader `source` waits for."""
        return any(blocked(source[name], pipe.state, memory, address) for name, pipe in self.items())

    def advance(self, chance: float = 0.3):
        """Let both pipelines advance, and show their progress to the unit."""
        for name, pipe in self.items():
            pipe.advance(chance)
            getattr(self.dut, name).value = pipe.payload


class EntryPipeline:
    """Chains that write VectorRf, and their progress; they advance at random.

    Attributes:
        done:  Number of finished chains.
        low:   Lowest entry that the next chain has not written.
        slots: The last writers, as `hw.lib.jobs.entry_writers` holds them.
    """

    def __init__(self, config: Config, seed):
        self.random, self.entries = random.Random(f"entries {seed}"), config.vector_rf
        self.shapes = Packer(entry_writers(config)), Packer(entry_progress(config))
        self.done = self.count = 0
        self.low, self.slots = 0, {k: {"ticket": 0, "lo": 0, "hi": 0} for k in range(ENTRY_WRITERS)}

    @property
    def payloads(self) -> tuple[int, int]:
        """Payloads of the writers and of their progress."""
        writers, state = self.shapes
        return writers.join(self.slots), state.join(self.state)

    @property
    def state(self) -> dict:
        """The fields of `hw.lib.jobs.entry_progress`."""
        return {"done": self.done % _NUMBERS, "low": self.low}

    def older(self) -> int:
        """The ticket of the youngest chain."""
        return self.count % _NUMBERS

    def advance(self, chance: float = 0.3):
        """Write some entries, end a chain, begin one, or do nothing."""
        if self.random.random() >= chance:
            return
        kind = self.random.random()
        if kind < 0.3 and self.count - self.done < ENTRY_WRITERS:
            self.count += 1
            lo, hi = sorted(self.random.randint(0, self.entries) for _ in range(2))
            self.slots[self.count % ENTRY_WRITERS] = {"ticket": self.count % _NUMBERS, "lo": lo, "hi": hi}
        elif kind < 0.6 and self.done < self.count:
            self.done, self.low = self.done + 1, 0
        elif self.done < self.count:
            self.low = min(self.low + self.random.choice((0, 1, 1, 3)), self.entries)

    def blocked(self, older: int, address: int) -> bool:
        """Whether a chain up to ticket `older` may still write the entry at `address`."""
        return entry_blocked(self.slots, older, self.state, address)


class Writers:
    """The unfinished writes of a pipeline: for each memory the range of addresses and the youngest chain.

    Attributes:
        count: Number of chains so far.
    """

    def __init__(self):
        self.count, self._ranges = 0, {}

    def dependency(self, memory: int, done: int) -> dict:
        """The `hw.lib.jobs.dependency` of a reader that comes when `done` chains are done."""
        last, lo, hi = self._ranges.get(memory, (0, 0, 0))
        return {"valid": int(last > done), "ticket": last % _NUMBERS, "lo": lo, "hi": hi}

    def add(self, writes: dict[int, dict], done: int):
        """Note one more chain, with its `hw.lib.payloads.write` by memory."""
        self.count += 1
        for memory, write in writes.items():
            last, lo, hi = self._ranges.get(memory, (0, 0, 0))
            joined = last > done
            self._ranges[memory] = (self.count, min(lo, write["lo"]) if joined else write["lo"],
                                    max(hi, write["hi"]) if joined else write["hi"])


class Vectors:
    """Vector memories at the ports `request`, `grant` and `data` of `dut`, and at `writes` and `free` if it has them.

    When no word was requested, `data` is noise. A word is readable in the cycle after its write.

    Args:
        stall: Probability that a cycle grants no read, or that a memory takes no write.

    Attributes:
        contents: Words of each memory, random at the start.
        reads:    (memory, address) of each word read.
    """

    def __init__(self, dut, config: Config, *, seed: int, stall: float):
        self.dut, self.stall, self.random = dut, stall, random.Random(f"vectors {seed}")
        self.word, self.bits = Packer(word(config)), word(config).size
        self.contents = [[self.random.getrandbits(self.bits) for _ in range(depth(config, mem))] for mem in VRFS]
        self.reads: list[tuple[int, int]] = []
        self.request = Packer(read_request(config))
        self.write = Packer(data.ArrayLayout(write_request(config), len(VRFS))) if hasattr(dut, "writes") else None
        self.coming = deque(self.random.getrandbits(self.bits) for _ in range(VECTOR_READ - 1))
        dut.vectors__grant.value = 0
        every_cycle(dut, self._serve)

    def _serve(self):
        dut = self.dut
        request = self.request.of(int(dut.vectors__request.value))
        found = self.random.getrandbits(self.bits)
        if request["valid"] and dut.vectors__grant.value and not dut.rst.value:
            self.reads.append((request["memory"], request["address"]))
            found = self.contents[request["memory"]][request["address"]]
        self.coming.append(found)
        dut.vectors__data.value = self.coming.popleft()
        dut.vectors__grant.value = int(self.random.random() >= self.stall)
        if self.write:
            self._take_writes()

    def _take_writes(self):
        free = int(self.dut.free.value)
        for memory, write in self.write.of(int(self.dut.writes.value)).items():
            if write["valid"]:
                assert free >> memory & 1, f"memory {memory} was written while it was not free"
                self.contents[memory][write["address"]] = self.word.join(write["word"])
        self.dut.free.value = sum((self.random.random() >= self.stall) << k for k in range(len(VRFS)))
