"""Testbench of hw.schedule.operand_fetch: the vectors of products arrive in order, and no word is read too early."""

import cocotb
import numpy as np
from concord.hw.lib.jobs import fetch_job
from concord.hw.lib.payloads import NET, operand_word
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import Sink, StreamSource, clock, start
from concord.sim.reference.hazards import Pipelines, Vectors, ahead, waiting
from concord.sim.stimulus.chains import fields, pipelines, random_chains

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "self.mfu.iteration >= iteration", "new": "self.mfu.iteration + 1 >= iteration"},
    {"file": "hw/lib/lookahead.py", "old": "chosen = Mux(known, Value.cast(coming), Value.cast(present))",
     "new": "chosen = Value.cast(present)"},
    {"file": "hw/lib/lookahead.py", "old": "(address < dependency.hi)", "new": "(address + 1 < dependency.hi)"},
    {"file": "hw/lib/lookahead.py", "old": "Mux(self.last, self._single, self.number == self._limit)",
     "new": "self.number == self._limit"},
    {"file": "hw/lib/lookahead.py", "old": "self.m.If(self.advance & self.begins)", "new": "self.m.If(self.advance)"},
)

JOB, OPERAND = Packer(fetch_job(CONFIG)), Packer(operand_word(CONFIG.mfu_lanes))


class Bench:
    """The operand fetch, with memories, NetQ and pipelines in Python around it."""

    def __init__(self, dut, stall: float, dependent: bool):
        seed = cocotb.RANDOM_SEED
        self.dut, self.dependent, self.cycles = dut, dependent, 0
        self.vectors = Vectors(dut, CONFIG, seed=seed, stall=stall)
        self.jobs, self.net = (StreamSource(dut, name, stall=stall) for name in ("job", "net"))
        self.sink = Sink(dut, "o", stall=stall)
        self.pipes = Pipelines(dut, CONFIG, seed)

    def job(self, chain) -> dict:
        """The job of a chain: its record, with dependencies on older chains and their writes."""
        record = fields(CONFIG, chain)
        job = {name: record[name] for name in ("memory", "iterations", "iterations_x", "stride_x", "stride_y")}
        job |= {"words": record["operand_words"], "integer": chain.product.integer, "unsigned": chain.product.unsigned}
        if self.dependent:
            job |= {name: pipe.wait() for name, pipe in self.pipes.items()}
            job["own"] = self.pipes["mfu"].wait()
        source = self.pipes.reader(chain)
        for name in () if self.dependent else self.pipes:
            del source[name]
        job["source"] = source if chain.random_source else {"valid": 0}
        return JOB.of(JOB.join(job))

    async def word(self, job: dict, iteration: int, address: int):
        """Wait until a word is read, and check whether it may be read."""
        dut = self.dut
        while True:
            await clock(dut)
            self.cycles += 1
            taken = bool(dut.busy.value)
            assert not (taken and dut.waits.value)
            for name, pipe in self.pipes.items() if taken else ():
                assert not waiting(job[name], pipe.state["done"]), f"an older chain of {name} must end first"
            if taken and job["memory"] != NET:
                assert not self.pipes.blocked(job["source"], job["memory"], address)
            if taken and iteration and job["own"]["valid"]:
                mfu = self.pipes["mfu"].state
                own = ahead(job["own"]["ticket"], mfu["done"])
                assert own <= 0 or (own == 1 and mfu["iteration"] >= iteration), "own writes must land first"
            self.pipes.advance(0.5)
            if taken:
                return


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.4], dependent=[False, True])
async def brings_vectors_in_order(dut, stall, dependent):
    """Sources of random products, in memories and NetQ; without dependencies and stalls, one word a cycle."""
    bench, seed = Bench(dut, stall, dependent), cocotb.RANDOM_SEED
    chains = random_chains(CONFIG, np.random.default_rng(seed), 100, lambda chain: pipelines(chain)[0] == "fetch")
    await start(dut)
    wanted = []
    for chain in chains:
        job = bench.job(chain)
        bench.jobs.put(JOB.join(job))
        for number in range(job["words"] * job["iterations"]):
            iteration, index = divmod(number, job["words"])
            address = chain.source.a + chain.source_offset(iteration) + index
            if job["memory"] == NET:
                value = bench.vectors.random.getrandbits(bench.vectors.bits)
                bench.net.put(value)
            else:
                value = bench.vectors.contents[job["memory"]][address]
            wanted.append((value, job["integer"], job["unsigned"], index == job["words"] - 1))
            await bench.word(job, iteration, address)
    for value, *flags in wanted:
        payload = await bench.sink.get()
        got = OPERAND.of(payload)
        assert payload & (1 << bench.vectors.bits) - 1 == value
        assert [got["integer"], got["unsigned"], got["last"]] == flags
    assert int(dut.done.value) == len(chains)
    assert stall or dependent or bench.cycles <= len(wanted) + 6 * len(chains)  # one job at a time
