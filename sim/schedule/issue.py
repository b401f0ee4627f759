"""Testbench of hw.schedule.issue: a word enters once all that it reads will be valid in time."""

import random
from collections import defaultdict, deque

import cocotb
import numpy as np
from amaranth.lib import data
from concord.hw.lib.jobs import issue_job, progress
from concord.hw.lib.payloads import MVM, NET, OPERANDS, address_bits, controls, held_mark
from concord.hw.lib.payloads import chain as chain_layout
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import StreamSource, clock, start
from concord.sim.reference.hazards import Pipeline, Writers, ahead, blocked, waiting
from concord.sim.reference.memory_order import MemoryOrder
from concord.sim.stimulus.chains import Word, chain_words, feeds_itself, fields, pipelines, random_chains
from concord.sim.stimulus.entry_chains import chains_of_entries
from concord.spec.isa.chain import Chain
from concord.spec.machine import timing

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "- due[k] - 1)", "new": "- due[k] - 2)"},
    {"old": "| no_room |", "new": "|"},
    {"old": "done[\"product\"] = self.product", "new": "pass"},
    {"file": "hw/lib/lookahead.py", "old": "Mux(ahead.begins, access.lo, following)", "new": "following"},
)

LATENCY, DUE = timing.mfu_pipeline(CONFIG), timing.operands_due(CONFIG)
CHAIN = Packer(chain_layout(CONFIG))
JOB, CONTROL, PROGRESS = Packer(issue_job(CONFIG)), Packer(controls(CONFIG)), Packer(progress(CONFIG))
ADDRESSES = Packer(data.ArrayLayout(address_bits(CONFIG), len(OPERANDS)))


class Units:
    """Model of the multi-function units and their memories: in which cycles words are read and written."""

    def __init__(self):
        self.order, self.reads, self.landing = MemoryOrder(CONFIG.vector_words), defaultdict(list), deque()

    def go(self, cycle: int, tag: tuple, word: Word):
        """A word enters: its source is read now, and its operands in later cycles."""
        if word.source:
            self.reads[cycle].append((tag, word.source))
        for address in word.operands.items():
            self.reads[cycle + 1 + DUE[OPERANDS.index(address[0])]].append((tag, address))
        self.landing.append((cycle + 1 + LATENCY, tag, word))

    def cycle(self, cycle: int, *, checked: bool) -> bool:
        """Do the reads of this cycle, then its write, which they do not see; return whether a word was written."""
        for tag, address in self.reads.pop(cycle, ()):
            if checked:
                self.order.read(tag, [address])
        landed = bool(self.landing) and self.landing[0][0] == cycle
        if landed:
            _, tag, word = self.landing.popleft()
            self.order.write(tag, word.writes.items())
        return landed


class Bench:
    """The issue unit, with queues, the multi-function units and other pipelines in Python around it."""

    def __init__(self, dut, stall: float, dependent: bool):
        seed = cocotb.RANDOM_SEED
        self.dut, self.stall, self.dependent, self.random = dut, stall, dependent, random.Random(seed)
        self.sources = {name: StreamSource(dut, name, stall=stall) for name in (
            "job", "net", "pop", "gathered")}
        self.copy, self.fetch, self.product, self.writers, self.units = Pipeline(CONFIG, seed), 0, 0, Writers(), Units()
        self.jobs, self.unfinished, self.done, self.clock, self.entering = deque(), deque(), 0, 0, None
        for name in ("mfu", "copy", "fetch", "product", "vectors__grant", "vectors__data", "net_room", "landed"):
            getattr(dut, name).value = 0

    def reader(self, access: dict, memory: int) -> dict:
        """The fields of a reader, with the older writes that it must wait for."""
        reader = {name: access[name] for name in ("valid", "lo", "inc", *held_mark(CONFIG)) if name in access}
        if not access["valid"] or not self.dependent:
            return reader
        return reader | {"mfu": self.writers.dependency(memory, self.done), "copy": self.copy.dependency(access["lo"])}

    def put(self, chain: Chain):
        """Queue a chain, and its words of NetQ or MvmQ."""
        record = CHAIN.of(CHAIN.join(fields(CONFIG, chain)))
        pop = bool(chain.product or chain.pops)
        job = {name: record[name] for name in ("memory", "words", "iterations", "iterations_x", "stride_x", "stride_y",
                                               "stride_out", "control", "net")}
        job |= {"pop": pop, "gather": chain.gathers, "serial": self.dependent and feeds_itself(chain),
                "source": self.reader(record["source"], record["memory"]),
                "operands": {k: self.reader(each, OPERANDS[k]) for k, each in record["operands"].items()},
                "targets": {k: record["writes"][v] for k, v in enumerate(OPERANDS)}}
        if self.dependent:
            fetch, product = ({"valid": 1, "ticket": (done + self.random.randint(-3, 2)) % 128}
                              for done in (self.fetch, self.product))
            job |= {"copy": self.copy.wait(), "fetch": fetch, "product": product}
        job = JOB.of(JOB.join(job))
        self.sources["job"].put(JOB.join(job))
        if pop or job["gather"] or job["memory"] == NET:
            queue = self.sources["pop" if pop else "gathered" if job["gather"] else "net"]
            queue.put(*(self.random.getrandbits(queue.width) for _ in chain_words(chain)))
        self.units.order.plan(self.writers.count, chain)
        writes = {k: w for k, w in record["writes"].items() if w["valid"]}
        self.unfinished.append((deque(chain_words(chain)), writes, job))
        self.jobs.append((self.writers.count, deque(chain_words(chain)), job))
        self.writers.add(writes, self.done)

    def check(self, number: int, word, job: dict):
        """Check a word that enters, and pass it to the model of the units."""
        dut = self.dut
        assert not waiting(job["fetch"], self.fetch), "operands must be fetched first"
        assert not waiting(job["product"], self.product), "products must read entries first"
        assert not waiting(job["copy"], self.copy.state["done"]), "an older copy must end first"
        assert not job["net"] or dut.net_room.value
        assert not job["serial"] or not self.units.landing, "the word before must land first"
        for memory, address in word.reads:
            reader = job["source"] if (memory, address) == word.source else job["operands"][OPERANDS.index(memory)]
            assert not blocked(reader["copy"], self.copy.state, memory, address)
        assert int(dut.reads.value) == sum(o["valid"] << k for k, o in job["operands"].items())
        stages = [bool(unit[name]) for unit in job["control"].values() for name in ("add", "act", "mul")]
        assert int(dut.stages.value) == sum(on << k for k, on in enumerate(stages))
        assert bool(dut.to_net.value) == job["net"]
        assert bool(dut.popped.value) == (job["memory"] == MVM)
        self.units.go(self.clock, (number, word.iteration, word.index), word)
        self.entering = word, job

    def check_entry(self):
        """Check what the units get of the word of the cycle before."""
        dut, (word, job) = self.dut, self.entering
        addresses = ADDRESSES.of(int(dut.addresses.value))
        assert {OPERANDS[k]: addresses[k] for k, o in job["operands"].items() if o["valid"]} == word.operands
        if CONFIG.more_functions:
            assert int(dut.held.value) == sum(o["held"] << k for k, o in job["operands"].items() if o["valid"])
        assert CONTROL.of(int(dut.control.value)) == job["control"]
        self.entering = None

    def progress(self) -> int:
        """The payload of the port `progress`, as `Writeback` would report it."""
        low = {}
        if self.unfinished:
            left, writes, job = self.unfinished[0]
            for k, write in writes.items():
                final = left[0].iteration == job["iterations"] - 1
                low[k] = left[0].writes[k] if write["rising"] or final else write["lo"]
        iteration = self.unfinished[0][0][0].iteration if self.unfinished else 0
        return PROGRESS.join({"done": self.done % 128, "iteration": iteration, "low": low})

    def _copies_may_end(self) -> bool:
        """Whether a copy may end without going so far beyond what the first job waits for that tickets come again."""
        job = self.jobs[0][2] if self.jobs else None
        readers = [job["source"], *job["operands"].values()] if job else []
        waits = [job["copy"], *(reader["copy"] for reader in readers)] if job else []
        return all(ahead(self.copy.state["done"], wait["ticket"]) < 32 for wait in waits if wait["valid"])

    def _later(self, name: str) -> int:
        """Number of chains that another pipeline has finished, a cycle later; not many before the first job ends."""
        done = getattr(self, name)
        oldest = self.jobs[0][2][name]["ticket"] if self.jobs and self.dependent else done
        return (done + (self.random.random() < 0.2 and ahead(done, oldest) < 32)) % 128

    async def cycle(self) -> bool:
        """Simulate one cycle, and return whether a word has entered."""
        dut = self.dut
        await clock(dut)
        self.clock += 1
        assert bool(dut.enter.value) == (self.entering is not None)
        if self.entering:
            self.check_entry()
        went = bool(dut.go.value)
        if went:
            number, left, job = self.jobs[0]
            self.check(number, left.popleft(), job)
            if not left:
                self.jobs.popleft()
        if self.units.cycle(self.clock, checked=self.dependent):
            self.unfinished[0][0].popleft()
            if not self.unfinished[0][0]:
                self.unfinished.popleft()
                self.done += 1
        if self._copies_may_end():
            self.copy.advance(0.6)
        self.fetch, self.product = (self._later(name) for name in ("fetch", "product"))
        landing = self.units.landing
        dut.landed.value = int(bool(landing) and landing[0][0] == self.clock + 1)
        dut.mfu.value, dut.copy.value = self.progress(), self.copy.payload
        dut.fetch.value, dut.product.value = self.fetch, self.product
        dut.vectors__grant.value, dut.net_room.value = (int(self.random.random() >= self.stall) for _ in range(2))
        return went


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.3], dependent=[False, True])
async def as_if_in_order(dut, stall, dependent):
    """Random chains, which read what older ones write. Chains without dependencies enter a word in every cycle."""
    bench = Bench(dut, stall, dependent)
    chains = random_chains(CONFIG, np.random.default_rng(cocotb.RANDOM_SEED), 80, lambda c: "mfu" in pipelines(c))
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    entries = chains_of_entries(CONFIG, rng, 60, lambda chain: "mfu" in pipelines(chain))
    chains = [chains[k] if k < len(chains) else entries[k - len(chains)] for k in rng.permutation(140)]
    await start(dut)
    busy = 0
    for chain in chains:
        bench.put(chain)
        while len(bench.jobs) > 4:
            busy += await bench.cycle()
    gap = bench.clock - busy
    while bench.unfinished:
        await bench.cycle()
    assert stall or dependent or gap < 20, f"{gap} cycles without a word"
