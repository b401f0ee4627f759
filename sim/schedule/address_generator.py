"""Testbench of hw.schedule.address_generator: each source word is read as soon as it is valid."""

import random
from collections import deque

import cocotb
import numpy as np
from concord.hw.lib.payloads import MVM, NET, VECTOR_READ
from concord.hw.schedule.address_generator import WordPosition, read_request, walk
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import StreamSource, clock, start
from concord.sim.reference.hazards import Pipelines, Vectors
from concord.sim.stimulus.chains import fields, pipelines, random_chains

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "*x.begin(job.iterations_x)", "new": "*x.begin(job.iterations_x + 1)"},
    {"old": "(memory == seen) & (address < low)", "new": "(address < low)"},
    {"file": "hw/lib/lookahead.py", "old": "later | ((wait.ticket == following) & ~passed)", "new": "later"},
)

LATE = 2  #: Most cycles for which a word waits that no older chain may write any more.
JOB, REQUEST, POSITION = Packer(walk(CONFIG)), Packer(read_request(CONFIG)), Packer(WordPosition)


class Bench:
    """An address generator with memories, queues and pipelines in Python around it."""

    def __init__(self, dut, stall: float, dependent: bool):
        seed = cocotb.RANDOM_SEED
        self.dut, self.random, self.dependent = dut, random.Random(seed), dependent
        self.vectors = Vectors(dut, CONFIG, seed=seed, stall=stall)
        self.jobs = StreamSource(dut, "job", stall=stall)
        self.queues = {NET: StreamSource(dut, "net", stall=stall), MVM: StreamSource(dut, "pop", stall=stall)}
        self.pipes, self.stall, self.next = Pipelines(dut, CONFIG, seed), stall, None
        self.words, self.cycles, self.total, self.late = deque(), 0, 0, 0
        self.coming = deque([None] * (VECTOR_READ - 1))
        dut.hold.value = 0

    def job(self, chain) -> dict:
        """The job of a chain: its source, and dependencies on older writes near it."""
        record, names = fields(CONFIG, chain), ("memory", "iterations", "iterations_x", "stride_x", "stride_y")
        job = {name: record[name] for name in names} | {
            "words": record["operand_words" if chain.product else "words"], "source": {"valid": 0}}
        if chain.random_source:
            job["source"] = self.pipes.reader(chain)
            for name in () if self.dependent else self.pipes:
                del job["source"][name]
        elif record["memory"] in self.queues:
            self.queues[record["memory"]].put(
                *(self.random.getrandbits(self.vectors.bits) for _ in range(job["words"] * job["iterations"])))
        return job

    def put(self, chain):
        """Queue the job of a chain, and its words."""
        job = self.job(chain)
        self.jobs.put(JOB.join(job))
        self.total += job["words"] * job["iterations"]
        for number in range(job["words"] * job["iterations"]):
            iteration, index = divmod(number, job["words"])
            address = chain.source.a + chain.source_offset(iteration) + index if chain.random_source else 0
            self.words.append((JOB.of(JOB.join(job)), iteration, index, address))

    async def cycle(self):
        """Check in one cycle whether the present word may be taken."""
        dut = self.dut
        await clock(dut)
        self.cycles += 1
        self.check_word()
        position, request = POSITION.of(int(dut.present.value)), REQUEST.of(int(dut.vectors__request.value))
        self.next = None
        taken = bool(dut.go.value)
        assert not (dut.hold.value and (taken or request["valid"]))
        if position["valid"]:
            job, iteration, index, address = self.words[0]
            ends = index == job["words"] - 1, iteration == job["iterations"] - 1
            assert position == {"valid": 1, "iteration": iteration, "first_word": not index, "last_word": ends[0],
                             "first_iteration": not iteration, "last_iteration": ends[1]}
            assert bool(dut.last.value) == all(ends)
            self.check(job["memory"], job, address, request, taken=taken)
        assert position["valid"] or not taken
        assert bool(dut.waits.value) == bool(position["valid"] and not dut.hold.value and not taken)
        if taken:
            self.words.popleft()
        self.pipes.advance()
        dut.hold.value = int(self.random.random() < self.stall / 2)

    def check_word(self):
        """Check the word that was taken `VECTOR_READ` cycles ago, and note the one of the cycle before."""
        self.coming.append(self.next)
        due = self.coming.popleft()
        assert due is None or int(self.dut.word.value) == due, "a word that was taken"

    def check(self, memory: int, job: dict, address: int, request: dict, *, taken: bool):
        """Check a word that waits or is taken."""
        dut = self.dut
        if memory in self.queues:
            queue = self.queues[memory]
            there = bool(queue.valid.value) and not dut.hold.value
            assert taken == there
            assert bool(dut.starved.value) == (memory == NET and not there and not dut.hold.value)
            self.next = int(queue.payload.value) if taken else None
            return
        assert taken == bool(request["valid"] and dut.vectors__grant.value)
        if request["valid"]:
            assert (request["memory"], request["address"]) == (memory, address)
            assert not self.pipes.blocked(job["source"], memory, address)
        free = not (request["valid"] or dut.hold.value or self.pipes.blocked(job["source"], memory, address))
        self.late = self.late + 1 if free else 0
        assert self.late <= LATE, "the word is written, and is not read"
        self.next = self.vectors.contents[memory][address] if taken else None


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5], dependent=[False, True])
async def takes_each_word_in_time(dut, stall, dependent):
    """Sources of random chains, while older chains write near them; a word a cycle where nothing makes them wait."""
    bench = Bench(dut, stall, dependent)
    chains = random_chains(CONFIG, np.random.default_rng(cocotb.RANDOM_SEED), 80,
                           lambda chain: pipelines(chain)[0] not in ("columns", "gather"))
    await start(dut)
    for chain in chains:
        bench.put(chain)
        while len(bench.jobs.queue) > 2:
            await bench.cycle()
    while bench.words:
        await bench.cycle()
    for _ in range(VECTOR_READ):
        await clock(dut)
        bench.check_word()
        bench.next = None
    assert stall or dependent or bench.cycles <= bench.total + 10, f"{bench.cycles} cycles for {bench.total} words"
