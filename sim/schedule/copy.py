# amaranth: UnusedElaboratable=no
"""Testbench of hw.schedule.copy: copies and loads leave what they would leave if chains ran one after another."""

import random
from collections import deque

import cocotb
import numpy as np
from concord.hw.lib import message_payloads
from concord.hw.lib.jobs import copy_job, progress, write_job
from concord.hw.lib.payloads import Load, word
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import Sink, StreamSource, clock, start
from concord.sim.reference.hazards import Pipeline, Vectors, Writers, ahead, blocked, waiting
from concord.sim.stimulus.chains import chain_words, feeds_itself, fields, pipelines, random_chains
from concord.spec.isa.chain import Chain
from concord.spec.isa.memories import Mem

CONFIGURATIONS = ("tiny_softmax", "tiny", "serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": " | (present[\"serial\"] & ~ahead.empty)", "new": ""},
    {"old": "source.copy.eq(self.progress)", "new": "source.copy.eq(0)"},
)

JOB, WRITE_JOB, LOAD = Packer(copy_job(CONFIG)), Packer(write_job(CONFIG)), Packer(Load)
OUTGOING = Packer(message_payloads.outgoing(CONFIG))
WORD, PROGRESS = word(CONFIG).size, Packer(progress(CONFIG))
TILE = CONFIG.native_dim * CONFIG.vector_words


class Bench:
    """The copy pipeline between memories, queues and other pipelines in Python."""

    def __init__(self, dut, stall: float):
        self.dut, self.random, seed = dut, random.Random(cocotb.RANDOM_SEED), cocotb.RANDOM_SEED
        self.vectors = Vectors(dut, CONFIG, seed=seed, stall=stall)
        self.memories = [list(words) for words in self.vectors.contents]  # contents that are expected at the end
        self.sources = {name: StreamSource(dut, name, stall=stall) for name in ("job", "write_job", "net")}
        ends = ("out", "load", "matrix_word", *("vector_word",) * bool(CONFIG.dram_words))
        self.sinks = {name: Sink(dut, name, stall=stall) for name in ends}
        self.want = {name: [] for name in self.sinks}
        self.mfu, self.writers = Pipeline(CONFIG, seed), Writers()
        self.others = dict.fromkeys(("fetch", "product"), 0)
        self.queue, self.landing, self.done, self.loading = deque(), deque(), 0, 0
        self.ends, self.vectors_put = [], 0  # numbers of words of vectors after which tiles are whole
        dut.mfu.value = dut.fetch.value = dut.product.value = dut.load_done.value = dut.free.value = 0

    def wait(self, done: int) -> dict:
        return {"valid": self.random.getrandbits(1), "ticket": (done + self.random.randint(-3, 2)) % 128}

    def put(self, chain: Chain):
        """Queue a chain, and execute it in Python."""
        record = fields(CONFIG, chain)
        job = {name: value for name, value in record.items() if name in JOB.parts}
        if chain.builds:
            job |= {**record["product"], "vectors": 1}
        else:
            job |= {"words": TILE, **record["product"]} if chain.loads else {"serial": feeds_itself(chain)}
        if CONFIG.dram_words:
            job["count"] = len(chain.tiles)
        job |= {"mfu": self.mfu.wait(), **{name: self.wait(done) for name, done in self.others.items()}}
        if chain.random_source:
            source = {"valid": 1, "lo": chain.source.a, "inc": chain.source.inc}
            job["source"] = source | {"mfu": self.mfu.dependency(chain.source.a),
                                      "copy": self.writers.dependency(job["memory"], self.done)}
        job = JOB.of(JOB.join(job))
        self.sources["job"].put(JOB.join(job))
        if not chain.loads:
            self.sources["write_job"].put(
                WRITE_JOB.join({name: value for name, value in record.items()
                                if name in WRITE_JOB.parts and name not in ("entries", "outside")}))
        self.writers.add(record["writes"], self.done)
        self.execute(chain, record)
        for _ in chain.tiles if chain.builds else ():
            self.vectors_put += chain.registers.iterations_x * chain.result_words
            self.ends.append(self.vectors_put)
        self.queue.append((job, deque(chain_words(chain))))
        self.landing.append(len(chain.tiles) if chain.loads else chain.registers.iterations * chain.result_words)

    def execute(self, chain, record):
        for each in chain_words(chain):
            if each.source:
                value = self.memories[each.source[0]][each.source[1]]
            else:
                value = self.random.getrandbits(WORD)
                self.sources["net"].put(value)
            if chain.builds:
                self.want["vector_word"].append(value)
            elif chain.loads:
                self.want["matrix_word"].append(value)
                self.want["load"] += [LOAD.join({"tile": record["product"]["tile"] + each.iteration,
                                                 "integer": record["product"]["integer"]})] * (each.index == 0)
            value &= (1 << 16 * (chain.last_lanes if each.index == chain.result_words - 1 else CONFIG.mfu_lanes)) - 1
            for memory, address in each.writes.items():
                self.memories[memory][address] = value
            if record.get("net"):
                marks = {name: record[name] for name in ("softmax", "tail") if name in OUTGOING.parts}
                left = {"remaining": chain.result_words - each.index}
                self.want["out"].append(value | OUTGOING.join(left | marks))

    def words_of_tiles(self) -> int:
        """Number of tiles whose words have all come."""
        whole = len(self.sinks["matrix_word"].queue) // TILE
        come = len(self.sinks["vector_word"].queue) if CONFIG.dram_words else 0
        return whole + sum(come >= end for end in self.ends)

    async def cycle(self):
        """Check that the word taken in this cycle may be taken, and count what lands."""
        dut = self.dut
        await clock(dut)
        if dut.busy.value:
            job, left = self.queue[0]
            each = left.popleft()
            for name, done in (("mfu", self.mfu.state["done"]), *self.others.items()):
                assert not waiting(job[name], done), f"an older chain of {name} must end first"
            if each.source:
                assert not blocked(job["source"]["mfu"], self.mfu.state, *each.source)
            if job["matrix"]:
                assert len(self.landing) == len(self.queue), "older copies must land before a load"
            if not left:
                self.queue.popleft()
        assert ahead(PROGRESS.of(int(dut.progress.value))["done"], self.done) <= 0
        loaded = self.words_of_tiles() > self.loading and self.random.random() < 0.1
        if int(dut.landed.value) or dut.load_done.value:
            self.landing[0] -= 1
            if not self.landing[0]:
                self.landing.popleft()
                self.done += 1
        self.loading += int(loaded)
        dut.load_done.value = int(loaded)
        self.mfu.advance(0.6)
        dut.mfu.value = self.mfu.payload
        for name, done in self.others.items():
            oldest = self.queue[0][0][name]["ticket"] if self.queue else done
            self.others[name] += self.random.random() < 0.2 and ahead(done, oldest) < 32  # as in an epoch
            getattr(dut, name).value = self.others[name] % 128


def copies(chain: Chain) -> bool:
    """Whether a chain runs through the copy pipeline alone, without Dram."""
    return pipelines(chain) == ("copy",) and not any(one.mem == Mem.DRAM for one in chain.instructions)


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.4])
async def as_if_in_order(dut, stall):
    """Random copies and loads, many of which read what older ones write, leave the same contents as one by one."""
    bench = Bench(dut, stall)
    chains = random_chains(CONFIG, np.random.default_rng(cocotb.RANDOM_SEED), 80, copies)
    await start(dut)
    for chain in chains:
        bench.put(chain)
        while len(bench.queue) > 3:
            await bench.cycle()
    while bench.landing:
        await bench.cycle()
    await clock(dut, 4)
    assert PROGRESS.of(int(dut.progress.value))["done"] == len(chains)
    assert bench.vectors.contents == bench.memories
    for name, want in bench.want.items():
        assert await bench.sinks[name].receive(len(want)) == want, name
    assert Mem.NET_Q in {chain.source.mem for chain in chains}
