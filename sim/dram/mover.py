"""Testbench of hw.dram.mover against golden.schedule.dram: entries and integers move as they are packed."""

import random
from collections import deque

import cocotb
import numpy as np
from concord.golden.mvm.overflow import wrap
from concord.golden.schedule.dram import pack as pack_entries
from concord.golden.schedule.dram import unpack as unpack_entries
from concord.hw.dram.mover import LANDED, Mover
from concord.hw.dram.range_walker import Walk
from concord.hw.lib import message_payloads
from concord.hw.lib.jobs import TICKET, MoveJob
from concord.hw.lib.payloads import address_bits, word
from concord.sim.dram.memory_models import Dram, EntryMemory
from concord.sim.dram.range_walker import words_of
from concord.sim.drivers.bench import CONFIG, Packer, loaded, pack, unpack
from concord.sim.drivers.stream import Sink, StreamSource, clock, every_cycle, start
from concord.spec.isa.dram import bias_words, entries_words, words_of_bits
from concord.spec.machine import timing

CONFIGURATIONS = ("tiny", "serial", "wide", "tiny_float", "speech")
TESTED = ("serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "(self.state == State.WAIT) & (self.quiet == 0)", "new": "(self.state == State.WAIT)"},
    {"old": "Mux(self.present.integer, 0, exponents.o.p)", "new": "exponents.o.p"},
    {"old": "box.skip.eq(self.left == 1)", "new": "box.skip.eq(0)"},
    {"old": "box.skip.eq(due == 1)", "new": "box.skip.eq(0)", "config": "serial"},
    {"old": "Mux(last_x, job.line.skip, 0)", "new": "0"},
    {"old": "(wait == LANDED) & (unanswered == 0)", "new": "wait == LANDED"},
    {"old": "self.outside + Mux(codes, self.exponents_size, 0)", "new": "self.outside"},
    {"old": "Mux(there, bits, 0)", "new": "bits"},
    {"old": "ends & ~box.o.valid", "new": "ends", "config": "serial"},
    {"old": "Mux(last_x & writes, rows, self.inside)", "new": "self.inside"},
    {"old": "codes.o.valid & (exponents.o.valid | self.present.integer)", "new": "codes.o.valid"},
)

FORMAT, N, ENTRIES = CONFIG.activations, CONFIG.native_dim, bool(CONFIG.vector_rf)
JOB, WALK = Packer(MoveJob), Packer(Walk)
BIAS, ENTRY_WRITE = message_payloads.bias(CONFIG), message_payloads.entry_write(CONFIG)
QUIET = timing.product(CONFIG) + CONFIG.vector_words  #: Cycles in which results of earlier products land.
KINDS = ("bias", "in", "out") if ENTRIES else ("bias",)


def component(config) -> Mover:
    """A mover, which machines without Dram do not hold."""
    return Mover(config)


class Chip:
    """Dram and VectorRf around a mover: contents that are drawn when they are read, and what was written.

    Args:
        stall:   Probability of a cycle in which a stream stalls, or VectorRf grants no read.
        latency: Most cycles from the last word of a `store_walk` to its answer.
    """

    def __init__(self, dut, stall: float, latency: int):
        self.dut, self.latency, self.random = dut, latency, random.Random(cocotb.RANDOM_SEED)
        self.dram, self.cycle, self.moved = Dram(), 0, 0  # `moved`: cycle of the last write on the chip
        reads, writes = ("codes",) + ("exponents",) * ENTRIES, ("entry_write",) * ENTRIES
        self.jobs = StreamSource(dut, "job", stall=stall)
        late = 0.9 if latency > 1 else stall  # exponents come after codes
        self.words = {name: StreamSource(dut, name, stall=late if name == "exponents" else stall) for name in reads}
        self.walks = {name: Sink(dut, f"{name}_walk", stall=stall) for name in (*reads, *("store",) * ENTRIES)}
        self.bias = Sink(dut, "bias")  # BiasRf takes a word in every cycle
        self.written = {name: Sink(dut, name, stall=stall) for name in writes}
        self.stored = Sink(dut, "stored", stall=stall) if ENTRIES else None
        self.vectors, self.stores, self.answers = EntryMemory(dut, stall) if ENTRIES else None, deque(), deque()
        self.counts, self.finished, self.begun = {"entry_read": 0, "entry_written": 0}, [], []
        if ENTRIES:
            dut.written.value = 0
        every_cycle(dut, self.step)

    def step(self):
        """What happens at a rising edge."""
        dut, self.cycle = self.dut, self.cycle + 1
        if dut.rst.value:
            return
        if dut.job__valid.value and dut.job__ready.value:
            self.begun.append(self.cycle)
        for name in self.words:
            while self.walks[name].queue:
                assert dut.busy.value
                self.words[name].put(*map(self.dram.word, words_of(WALK.of(self.walks[name].queue.popleft()))))
        writes = [name for name in ("bias", *self.written) if getattr(dut, f"{name}__valid").value]
        if writes:
            self.moved = self.cycle
            assert self.cycle - self.begun[-1] >= QUIET, "results of earlier products are on their way"
        if ENTRIES:
            reads = self.vectors.step()
            assert not reads or self.cycle - self.begun[-1] >= QUIET
            self._store()
            for name in self.counts:
                self.counts[name] += int(getattr(dut, name).value)
        if int(dut.done.value) != len(self.finished) % (1 << TICKET):
            assert not self.stores, "words are not in Dram yet"
            assert not self.answers, "words are not in Dram yet"
            assert self.cycle - self.moved > LANDED
            self.finished.append(self.cycle)

    def _store(self):
        """Write words to Dram, and answer once all words of a walk are there."""
        while self.walks["store"].queue:
            self.stores.append(deque(words_of(WALK.of(self.walks["store"].queue.popleft()))))
        while self.stored.queue:
            assert self.stores, "a word that has no address in Dram"
            self.dram.contents[self.stores[0].popleft()] = self.stored.queue.popleft()
            if not self.stores[0]:
                self.stores.popleft()
                self.answers.append(self.cycle + self.random.randint(1, self.latency))
        answered = bool(self.answers) and self.answers[0] <= self.cycle
        if answered:
            self.answers.popleft()
        self.dut.written.value = int(answered)


def drawn(chance: random.Random, kind: str) -> dict:
    """A job whose iterations move in every direction."""
    x, y, entries = chance.choice((1, 2, 3)), chance.choice((1, 1, 2)), chance.choice((1, 2, 3, 5, 9))
    integer, words = chance.randrange(2), chance.choice((1, 2, 5))
    size = bias_words(words) if kind == "bias" else entries_words(CONFIG, entries, integer=bool(integer))
    inside = chance.randrange(8)
    job = {"writes": kind == "out", "bias": kind == "bias", "integer": integer, "entries": entries, "words": words,
           "iterations": x * y, "iterations_x": x, "tag": chance.randrange(99)}
    first = chance.randrange(1 << 31)
    if kind == "out":
        job["row"] = {"first": inside, "stride_x": chance.choice((0, 1, entries)), "stride_y": chance.randrange(4)}
        job["line"] = {"first": first, "step": chance.choice((0, size, size + 3)), "skip": 0}
    else:
        job["row"] = {"first": first, "stride_x": chance.choice((0, 1, size, size + 3)),
                      "stride_y": chance.choice((0, x * size, 65535))}
        job["line"] = {"first": inside, "step": chance.choice((0, 1, entries)), "skip": chance.randrange(9)}
    return job


def addresses(job: dict):
    """First addresses of the source and of the target, iteration by iteration."""
    row, line = job["row"], job["line"]
    for k in range(job["iterations"]):
        y, x = divmod(k, job["iterations_x"])
        yield (row["first"] + x * row["stride_x"] + y * row["stride_y"],
               line["first"] + k * line["step"] + y * line["skip"])


async def run_bias(chip: Chip, job: dict):
    """Check a job that writes BiasRf."""
    for source, target in addresses(job):
        words = chip.dram.numbers(source, bias_words(job["words"]))
        wanted = wrap(words.view("<i4").astype(np.int64).reshape(-1, CONFIG.mfu_lanes), CONFIG.bias_bits)
        found = unpack(BIAS, await chip.bias.receive(job["words"]))
        assert found["address"].tolist() == list(range(target, target + job["words"]))
        assert (found["data"] == wanted).all()


async def run_in(chip: Chip, job: dict):
    """Check a job that writes entries."""
    count, integer = job["entries"], bool(job["integer"])
    for source, target in addresses(job):
        words = chip.dram.numbers(source, entries_words(CONFIG, count, integer=integer))
        codes, exponents = unpack_entries(CONFIG, FORMAT, words, count * N, 0 if integer else count)
        found = unpack(ENTRY_WRITE, await chip.written["entry_write"].receive(count))
        assert found["address"].tolist() == list(range(target, target + count))
        assert (loaded(found["entry"]["mantissas"], FORMAT) == codes.reshape(count, N)).all()
        assert (found["entry"]["exponent"] == (0 if integer else exponents)).all()


async def run_out(chip: Chip, job: dict):
    """Check a job that reads entries: the contents of Dram after it."""
    finished, expected, count = len(chip.finished), {}, job["entries"]
    while len(chip.finished) == finished:
        await clock(chip.dut)
    for source, target in addresses(job):
        mantissas, exponents = zip(*(chip.vectors.entry(source + k) for k in range(count)), strict=True)
        words = pack_entries(CONFIG, FORMAT, np.array(mantissas), [] if job["integer"] else exponents)
        expected |= {target + k: value for k, value in enumerate(pack(word(CONFIG), words))}
    assert {address: chip.dram.contents.get(address) for address in expected} == expected


@cocotb.test(timeout_time=200, timeout_unit="us")
@cocotb.parametrize(stall=[0.0, 0.3, 0.6], latency=[1, 60])
async def moves_what_chains_say(dut, stall, latency):
    """Jobs of all kinds, one after the other: words, addresses, their order, when each is done, and what counts."""
    chance, chip = random.Random(cocotb.RANDOM_SEED), Chip(dut, stall, latency)
    await start(dut)
    counts = dict.fromkeys(chip.counts, 0)
    for number in range(36):
        kind = KINDS[number % len(KINDS)]
        job = drawn(chance, kind)
        chip.jobs.put(JOB.join(job))
        await {"bias": run_bias, "in": run_in, "out": run_out}[kind](chip, job)
        while len(chip.finished) <= number:
            await clock(dut)
        moved = job["entries"] * job["iterations"]
        counts["entry_written"] += moved * (kind == "in")
        counts["entry_read"] += moved * (kind == "out")
    await clock(dut, 3)
    assert not dut.busy.value
    assert not any(sink.queue for sink in (chip.bias, *chip.written.values(), *chip.walks.values()))
    assert not any(source.queue for source in chip.words.values()), "words that nobody took"
    assert not ENTRIES or chip.counts == counts


@cocotb.test(timeout_time=200, timeout_unit="us", skip=not ENTRIES)
@cocotb.parametrize(kind=["in", "out"], integer=[0, 1])
async def moves_at_full_rate(dut, kind, integer):
    """A long iteration: one entry a cycle into the chip, or a word, and one in 4 cycles out of it, each time."""
    chip, count = Chip(dut, 0.0, 1), (1 << address_bits(CONFIG)) - 2
    await start(dut)
    job = {"writes": kind == "out", "integer": integer, "entries": count, "iterations": 1, "iterations_x": 1}
    chip.jobs.put(JOB.join(job))
    while not chip.finished:
        await clock(dut)
    cycles = chip.finished[0] - chip.begun[0] - QUIET
    words = words_of_bits(CONFIG, count * N * FORMAT.code_bits)
    exponents = 0 if integer else words_of_bits(CONFIG, count * FORMAT.exponent_bits)
    limit = max(count, words) if kind == "in" else max(4 * count, words) + (not integer) * max(4 * count, exponents)
    dut._log.info("%s, %d entries: %d cycles", kind, count, cycles)
    assert cycles <= limit + 40
