"""What a testbench of hw.dram.transfers knows: chains and words of the host that are under way, beside the memories."""

import random

import cocotb
import numpy as np
from concord.golden.schedule.dram import pack_tile
from concord.hw.dram.range_walker import Walk
from concord.hw.dram.transfers import WRITTEN
from concord.hw.lib import message_payloads
from concord.hw.lib.jobs import TICKET, LoadJob, MoveJob
from concord.hw.lib.payloads import word
from concord.sim.dram.memory_models import EntryMemory, Port
from concord.sim.dram.mover import drawn, run_bias, run_in, run_out
from concord.sim.dram.range_walker import words_of
from concord.sim.dram.tile_unpacker import MODES, records, tiles
from concord.sim.drivers.bench import CONFIG, Packer, pack
from concord.sim.drivers.stream import Sink, StreamSource, clock, every_cycle, until
from concord.sim.reference.hazards import ahead
from concord.spec.isa.dram import bias_words, entries_words, tile_words

WALK, LOAD, MOVE, OUTSIDE = Packer(Walk), Packer(LoadJob), Packer(MoveJob), Packer(message_payloads.outside(CONFIG))
WIDTH = word(CONFIG).size
TILES, STORES = 1 << 22, 1 << 24  #: Words where tiles lie, and to which chains write.
CHAINS = ("reads", "stores", "load", "move")


class Bench:
    """The unit beside its memories, with what is known of its chains."""

    def __init__(self, dut, stall: float, latency: int):
        self.dut, self.port = dut, Port(dut, stall, latency)
        self.random, self.rng = random.Random(cocotb.RANDOM_SEED), np.random.default_rng(cocotb.RANDOM_SEED)
        self.dram, self.vectors = self.port.dram, EntryMemory(dut, stall) if CONFIG.vector_rf else None
        self.sources = {name: StreamSource(dut, name, stall=stall) for name in (
            "read_words", "store_words", "tile_words", "load", "move", "stored", "outside", "outside_range")}
        self.sinks = {name: Sink(dut, name, stall=stall) for name in ("read", "packed", "outside_words")}
        self.bias = Sink(dut, "bias")
        self.written = {"entry_write": Sink(dut, "entry_write", stall=stall)} if CONFIG.vector_rf else {}
        self.done, self.finished, self.moving = dict.fromkeys(CHAINS, 0), [], 0
        self.ends, self.answered, self.seen = [], 0, dict.fromkeys(self.sinks, 0)  # `ends`: words up to that of a chain
        self.loads, self.landed = [], []  # of each load, records up to its last one, and its wait; cycles of their ends
        self.product, self.ticket, self.tiles, self.counts = 0, 0, TILES, [0, 0]
        self.words = {"read": 0, "written": 0}  # what `words_read` and `words_written` must count
        self.host = {}  # words of the host that were taken, and were not found in Dram yet
        for name in ("running", "product", "message_error"):
            getattr(dut, name).value = 0
        every_cycle(dut, self.step)

    def step(self):
        """What happens at a rising edge."""
        dut, moves = self.dut, {name: self._moves(name) for name in (*self.sinks, "outside")}
        if dut.rst.value:
            return
        self._check_done(moves)
        self._check_host(moves["outside"])
        self.counts = [count + int(getattr(dut, name).value)
                       for count, name in zip(self.counts, ("words_read", "words_written"), strict=True)]
        self.product += self.product < self.ticket and self.random.random() < 0.05
        dut.product.value = self.product % (1 << TICKET)
        if self.vectors:
            self.vectors.step()
        self.port.serve()

    def _moves(self, name: str) -> int:
        return int(getattr(self.dut, f"{name}__valid").value and getattr(self.dut, f"{name}__ready").value)

    def _check_done(self, moves: dict):
        """Check the numbers of finished chains, and that no tile comes too early."""
        dut, seen, cycle = self.dut, self.seen, self.port.cycle
        for name in CHAINS:
            self.done[name] += (int(getattr(dut, f"{name}_done").value) - self.done[name]) % (1 << TICKET)
        self.finished += [cycle] * (self.done["move"] - len(self.finished))
        assert self.done["reads"] == sum(end <= seen["read"] for end in self.ends)
        assert self.done["stores"] == self.answered
        self.answered += int(dut.write_done.value and dut.running.value and not self.moving)
        if dut.packed__valid.value:
            wait = self.loads[sum(end <= seen["packed"] for end, _ in self.loads)][1]
            early = wait["valid"] and ahead(wait["ticket"], int(dut.product.value)) > 0
            assert not early, "a product needs the tiles"
        for name in seen:
            seen[name] += moves[name]
        self.landed += [cycle] * (sum(end <= seen["packed"] for end, _ in self.loads) - len(self.landed))
        assert self.done["load"] <= sum(end + WRITTEN < cycle for end in self.landed)

    def _check_host(self, taken: int):
        """Check `settled`: every word of the host that was taken is in Dram."""
        dut, dram = self.dut, self.dram.contents
        if dut.settled.value:
            assert all(dram.get(first) == value for first, value in self.host.items()), "a word is not in Dram yet"
            self.host.clear()
        if taken:
            one = OUTSIDE.of(int(dut.outside__payload.value))
            self.host[one["first"]] = sum(lane << 16 * k for k, lane in one["word"].items())

    def read(self) -> list[int]:
        """Queue a chain that reads words, and return these."""
        walk = self._walk(0)
        words = [self.dram.word(address) for address in words_of(walk)]
        self.ends.append((self.ends or [0])[-1] + len(words))
        self.words["read"] += len(words)
        self.sources["read_words"].put(WALK.join(walk))
        return words

    def store(self) -> dict[int, int]:
        """Queue a chain that writes words, and return what Dram must hold after it, by address."""
        walk = self._walk(STORES)
        addresses = words_of(walk)
        words = {address: self.random.getrandbits(WIDTH) for address in addresses}
        self.words["written"] += len(addresses)
        self.sources["store_words"].put(WALK.join(walk))
        self.sources["stored"].put(*(words[address] for address in addresses))
        return words

    def _walk(self, first: int) -> dict:
        chance = self.random
        x, y, words = chance.choice((1, 2, 5)), chance.choice((1, 2)), chance.choice((1, 2, 7, 40))
        return {"first": first + chance.randrange(1 << 20), "inc": chance.randrange(4) > 0, "words": words,
                "iterations": x * y, "iterations_x": x, "stride_x": chance.choice((0, words, words + 1)),
                "stride_y": chance.choice((0, x * words, 65535))}

    def load(self) -> list[int]:
        """Queue a chain that loads tiles, and return its records."""
        integer, diagonal = self.random.choice(MODES)
        count, tile, size = self.random.choice((1, 1, 3)), self.random.randrange(1000), tile_words(
            CONFIG, integer=bool(integer), diagonal=bool(diagonal))
        mantissas, exponents = tiles(self.rng, count, integer=integer, diagonal=diagonal)
        for k, pair in enumerate(zip(mantissas, exponents, strict=True)):
            packed = pack(word(CONFIG), pack_tile(CONFIG, *pair, integer=bool(integer), diagonal=bool(diagonal)))
            self.dram.contents |= {self.tiles + k * size + at: value for at, value in enumerate(packed)}
        wait = {"valid": self.random.randrange(4) > 0, "ticket": (self.ticket + self.random.randint(-3, 0)) % 128}
        self.ticket += self.random.randrange(2)
        found = records(tile, mantissas, exponents, integer)
        self.loads.append(((self.loads or [(0, 0)])[-1][0] + len(found), wait))
        self.sources["load"].put(LOAD.join({"tile": tile, "integer": integer, "diagonal": diagonal, "count": count,
                                            "product": wait}))
        self.sources["tile_words"].put(WALK.join({
            "first": self.tiles, "inc": 1, "words": size, "iterations": count, "iterations_x": count,
            "stride_x": size}))
        self.tiles += size * count
        self.words["read"] += size * count
        return found

    async def move(self, kind: str):
        """Run a chain that moves what is packed as it is."""
        job, finished = drawn(self.random, kind), len(self.finished)
        self.moving = 1
        self.sources["move"].put(MOVE.join(job))
        await {"bias": run_bias, "in": run_in, "out": run_out}[kind](self, job)
        await until(self.dut, lambda: len(self.finished) > finished)
        self.moving = 0
        size = bias_words(job["words"]) if kind == "bias" else entries_words(
            CONFIG, job["entries"], integer=bool(job["integer"]))
        self.words["written" if kind == "out" else "read"] += job["iterations"] * size

    def message(self, first: int, count: int, *, left: int = 0) -> dict[int, int]:
        """Queue a message of the host that lacks its last `left` words; return its words by address."""
        words = {first + k: self.random.getrandbits(WIDTH) for k in range(count)}
        self.sources["outside"].put(*((address | left + count - k << 32 | value << 64)
                                      for k, (address, value) in enumerate(words.items())))
        return words

    async def settle(self):
        """Wait until all words of the host are in Dram."""
        await self.sources["outside"].drain()
        await clock(self.dut, 2)
        await until(self.dut, lambda: self.dut.settled.value)

    def check(self, words: dict[int, int]):
        """Check that Dram holds these words."""
        found = {address: self.dram.contents.get(address) for address in words}
        assert found == words
