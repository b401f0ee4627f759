"""Testbench of hw.schedule.address_generator: each source word is read as soon as it is valid."""

import random

import cocotb
import numpy as np
from concord.hw.lib.payloads import MVM, NET
from concord.hw.schedule.address_generator import read_request, walk
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import StreamSource, clock, start
from concord.sim.reference.hazards import Pipelines, Vectors
from concord.sim.stimulus.chains import fields, pipelines, random_chains

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "x == job.iterations_x - 1", "new": "x == job.iterations_x"},
    {"file": "hw/lib/jobs.py", "old": "(ahead == 1) & (address < low)", "new": "(address < low)"},
)

JOB, REQUEST = Packer(walk(CONFIG)), Packer(read_request(CONFIG))


class Bench:
    """An address generator with memories, queues and pipelines in Python around it."""

    def __init__(self, dut, stall: float):
        seed = cocotb.RANDOM_SEED
        self.dut, self.random = dut, random.Random(seed)
        self.vectors = Vectors(dut, CONFIG, seed=seed, stall=stall)
        self.queues = {NET: StreamSource(dut, "net", stall=stall), MVM: StreamSource(dut, "pop", stall=stall)}
        self.pipes, self.stall, self.next = Pipelines(dut, CONFIG, seed), stall, None
        dut.job.value = dut.hold.value = 0

    def job(self, chain) -> dict:
        """The job of a chain: its source, and dependencies on older writes near it."""
        record, names = fields(CONFIG, chain), ("memory", "iterations", "iterations_x", "stride_x", "stride_y")
        job = {name: record[name] for name in names} | {
            "valid": 1, "words": record["operand_words" if chain.product else "words"], "source": {"valid": 0}}
        if chain.random_source:
            job["source"] = self.pipes.reader(chain)
        elif record["memory"] in self.queues:
            self.queues[record["memory"]].put(
                *(self.random.getrandbits(self.vectors.bits) for _ in range(job["words"] * job["iterations"])))
        return job

    async def word(self, chain, job: dict, iteration: int, index: int):
        """Wait until a word is taken, and check in each cycle whether it may be taken."""
        dut, memory = self.dut, job["memory"]
        address = chain.source.a + chain.source_offset(iteration) + index
        while True:
            await clock(dut)
            if self.next is not None:
                assert int(dut.word.value) == self.next, "the word taken in the cycle before"
            self.next, active = None, not dut.hold.value
            if memory in self.queues:
                there = bool(self.queues[memory].valid.value)
                assert bool(self.queues[memory].ready.value) == active
                value = int(self.queues[memory].payload.value)
            else:
                free = not self.pipes.blocked(job["source"], memory, address)
                assert REQUEST.of(int(dut.vectors__request.value)) == {
                    "valid": active and free, "memory": memory, "address": address}
                there, value = free and bool(dut.vectors__grant.value), self.vectors.contents[memory][address]
            assert bool(dut.go.value) == (active and there)
            assert bool(dut.waits.value) == (active and not there)
            assert bool(dut.starved.value) == (active and not there and memory == NET)
            ends = index == job["words"] - 1, iteration == job["iterations"] - 1
            assert (int(dut.index.value), int(dut.iteration.value)) == (index, iteration)
            assert (dut.last_word.value, dut.last_iteration.value, dut.last.value) == (*ends, all(ends))
            self.pipes.advance()
            dut.hold.value = int(self.random.random() < self.stall / 2)
            if active and there:
                self.next = value
                return


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def takes_each_word_in_time(dut, stall):
    """Sources of random chains, one after another, while older chains write near them."""
    bench = Bench(dut, stall)
    chains = random_chains(CONFIG, np.random.default_rng(cocotb.RANDOM_SEED), 80,
                           lambda chain: pipelines(chain)[0] not in ("columns", "gather"))
    await start(dut)
    for chain in chains:
        job = bench.job(chain)
        dut.job.value = JOB.join(job)
        for number in range(job["words"] * job["iterations"]):
            await bench.word(chain, job, *divmod(number, job["words"]))
    dut.job.value = 0
    await clock(dut)
    assert int(dut.word.value) == bench.next
