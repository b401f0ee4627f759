"""Testbench of hw.schedule.interlock: its jobs keep the order of the program, at any pace of the pipelines."""

import os
from collections import deque

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from concord.hw.lib.payloads import TICKET
from concord.hw.lib.payloads import chain as chain_layout
from concord.hw.schedule.interlock import PIPES, Done, ProductJob, copy_job, fetch_job, issue_job, write_job
from concord.sim.drivers.configs import from_text
from concord.sim.drivers.record import Record
from concord.sim.drivers.stream import Sink, Source, start
from concord.sim.reference.pipelines import Machine
from concord.sim.stimulus.chains import chain_words, fields, pipelines, random_chains

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "once & (write.lo <= read.lo)", "new": "write.lo <= read.lo"},
    {"old": 'y.mfu.eq(self._waits(m, c, "mfu", "copy_mfu", reads_net=net))',
     "new": 'y.mfu.eq(self._waits(m, c, "mfu", "copy_mfu", reads_net=0))'},
    {"old": "(count != EPOCH - 1) | ~behind", "new": "1"},
)

CONFIG = from_text(os.environ["CONFIG"])
CHAIN, DONE = Record(chain_layout(CONFIG)), Record(Done)
JOBS = {"fetch": Record(fetch_job(CONFIG)), "product": Record(ProductJob), "issue": Record(issue_job(CONFIG)),
        "write": Record(write_job(CONFIG)), "copy": Record(copy_job(CONFIG)), "copy_write": Record(write_job(CONFIG))}
PIPE = {"write": "mfu", "issue": "mfu", "copy_write": "copy"}  #: The pipeline of a job.
#: Fields that mean something else in a job than in a chain's record.
OWN = ("words", "source", "operands", "integer", "unsigned", "tile", "product")


class Bench:
    """The interlock, with pipelines in Python at its outputs."""

    def __init__(self, dut, stall: float, chains):
        seed = cocotb.RANDOM_SEED
        self.dut, self.machine = dut, Machine(seed)
        self.source = Source(dut, "i", seed=seed, stall=stall)
        self.sinks = {name: Sink(dut, name, seed=seed, stall=stall) for name in JOBS}
        self.waiting = {name: deque() for name in JOBS}
        self.records = {}
        for number, chain in enumerate(chains):
            self.machine.order.plan(number, chain)
            payload = CHAIN.join(fields(CONFIG, chain))
            self.records[number] = CHAIN.of(payload)
            self.source.put(payload)
            for name, queue in self.waiting.items():
                if PIPE.get(name, name) in pipelines(chain) and not (name == "copy_write" and chain.loads):
                    queue.append((number, chain))
        self.given = dict.fromkeys(PIPES, 0)
        dut.done.value = 0

    def hand_over(self, name: str, payload: int):
        """Give a job to its pipeline, and check that it belongs to the next chain that needs this pipeline."""
        number, chain = self.waiting[name].popleft()
        job, record = JOBS[name].of(payload), self.records[number]
        for field in set(job) & set(record) - set(OWN):
            assert job[field] == record[field], f"{field} of {name}"
        if name in ("write", "copy_write"):
            writer = self.machine.mfu if name == "write" else self.machine.copies
            writer.jobs.append((number, job, deque(chain_words(chain))))
            return
        self.given[name if name != "issue" else "mfu"] += 1
        if name == "product":
            assert job["product"] == record["product"]
        else:
            for reader, access in ((job["source"], record["source"]),
                                   *((each, record["operands"][k]) for k, each in job.get("operands", {}).items())):
                assert {key: reader[key] for key in ("valid", "lo", "inc")} == {
                    key: access[key] for key in ("valid", "lo", "inc")}
            assert job["words"] == (chain.source_words if name == "fetch" else CONFIG.native_dim * CONFIG.vector_words
                                    if chain.loads else chain.result_words)
        self.machine.jobs[name].append((number, chain, job))

    async def cycle(self) -> int:
        """Simulate one cycle, and return the number of chains under way."""
        await RisingEdge(self.dut.clk)
        for name, sink in self.sinks.items():
            while sink.queue:
                self.hand_over(name, sink.queue.popleft())
        done = self.machine.done
        under_way = {name: self.given[name] - done[name] for name in done}
        assert max(under_way.values()) < 1 << TICKET - 1, "two chains would have the same ticket"
        self.machine.cycle()
        self.dut.done.value = DONE.join({name: count % (1 << TICKET) for name, count in self.machine.done.items()})
        return sum(under_way.values())


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.4])
async def keeps_the_order(dut, stall):
    """Random chains overlap as far as their jobs allow; each reads what older ones wrote, and all of them end."""
    chains = random_chains(CONFIG, np.random.default_rng(cocotb.RANDOM_SEED), 150)
    bench, idle, most = Bench(dut, stall, chains), 0, 0
    await start(dut)
    while any(bench.waiting.values()) or idle < 3:
        under_way = await bench.cycle()
        most = max(most, under_way)
        idle = idle + 1 if under_way == 0 else 0
        assert not under_way or not dut.idle.value
    assert dut.idle.value
    assert most > 8, "hardly anything overlapped"
