"""Testbench of hw.mvm.column_walker against spec.isa.chain, which says where each column of a chain lies."""

import cocotb
import numpy as np
from concord.hw.lib.jobs import column_job
from concord.hw.mvm.column_walker import column_addresses
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import Sink, StreamSource, clock, start, until
from concord.sim.stimulus import products

TESTED = ("serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "m.If(whole)", "new": "m.If(ended)"},
    {"old": "Mux(end, step, stride)", "new": "Mux(end, step, strides[0])"},
    {"old": "[end | ended for end in ends[:COLUMNS]]", "new": "ends[:COLUMNS]", "config": "wide"},
)

JOB, STEP = Packer(column_job(CONFIG)), Packer(column_addresses(CONFIG))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def walks_in_order(dut, stall):
    """The columns of every step of random products, in order; one step a cycle while nothing stalls."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    chains = [products.random_entry_product(CONFIG, rng) for _ in range(60)]
    older = rng.integers(0, 128, len(chains))
    source, sink = StreamSource(dut, "job", stall=stall), Sink(dut, "o", stall=stall)
    await start(dut)
    jobs = list(zip(chains, older.tolist(), strict=True))
    source.put(*(JOB.join(products.entry_columns(chain, ticket)) for chain, ticket in jobs))
    walk = [(step, ticket) for chain, ticket in jobs for step in products.entry_steps(CONFIG, chain)]
    cycles = await until(dut, lambda: len(sink.queue) >= len(walk))
    assert stall or cycles <= len(walk) + 8, f"{cycles} cycles for {len(walk)} steps"
    for k, (step, ticket) in enumerate(walk):
        got = STEP.of(await sink.get())
        addresses = [got["addresses"][j] for j in range(got["columns"])]
        assert (addresses, got["older"]) == (step, ticket), k
    await clock(dut, 20)
    assert not sink.queue
