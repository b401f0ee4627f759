"""Testbench of hw.schedule.gather: each pixel of each window is read in order, as soon as it is valid."""

import random
from collections import deque

import cocotb
import numpy as np
from concord.hw.lib.jobs import gather_job
from concord.hw.lib.payloads import ENTRIES, ENTRY_READ, VECTOR_READ, entry
from concord.hw.schedule.address_generator import read_request
from concord.hw.schedule.gather import pixel
from concord.sim.drivers.bench import CONFIG, Packer
from concord.sim.drivers.stream import StreamSource, clock, start
from concord.sim.reference.hazards import EntryPipeline, Pipelines, Vectors
from concord.sim.stimulus.chains import fields
from concord.sim.stimulus.entry_chains import chains_of_entries, pixels
from concord.spec.isa.chain import Chain

MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "step.eq(~from_entries | last_part)", "new": "step.eq(1)"},
    {"old": "(self.room | ~now[\"first\"])", "new": "self.room"},
    {"file": "hw/lib/lookahead.py", "old": "reads & ~(older - writer.ticket)[TICKET - 1]", "new": "reads"},
    {"file": "hw/lib/lookahead.py", "old": "(address >= writer.lo)", "new": "(address > writer.lo)"},
    {"file": "hw/lib/lookahead.py", "old": "self._first[k].eq(left.all())", "new": "self._first[k].eq(0)"},
    {"file": "hw/lib/lookahead.py", "old": "left[-1] & ~left.all()", "new": "0"},
    {"file": "hw/lib/lookahead.py", "old": "(here & self._later).any() |", "new": ""},
)

LATE = 2  #: Most cycles for which the present pixel waits while it may be read.
AFTER = max(VECTOR_READ, ENTRY_READ) + 1  #: Cycles from a read to the pixel.
JOB, REQUEST, ENTRY, PIXEL = (
    Packer(shape(CONFIG)) for shape in (gather_job, read_request, entry, pixel))


class Bench:
    """The gather unit with memories, VectorRf and pipelines in Python around it."""

    def __init__(self, dut, stall: float):
        seed = cocotb.RANDOM_SEED
        self.dut, self.random, self.stall = dut, random.Random(seed), stall
        self.vectors = Vectors(dut, CONFIG, seed=seed, stall=stall)
        self.entries = [ENTRY.of(self.random.getrandbits(ENTRY.width)) for _ in range(CONFIG.vector_rf)]
        self.pipes = Pipelines(dut, CONFIG, seed)
        self.writers, self.jobs = EntryPipeline(CONFIG, seed), StreamSource(dut, "job", stall=stall)
        self.late = 0
        self.expected, self.taken, self.coming = deque(), deque(), deque([0] * (ENTRY_READ - 1))
        for name in ("writers", "entries", "vector_rf__entry", "vector_rf__grant", "room"):
            getattr(dut, name).value = 0

    def put(self, chain: Chain):
        """Queue a job, and its pixels."""
        record = fields(CONFIG, chain)
        names = ("memory", "words", "iterations", "iterations_x", "stride_x", "stride_y", "mode", "window")
        job = {name: record[name] for name in names} | {
            "source": self.pipes.reader(chain), "pool": chain.pools, "older": self.writers.older()}
        self.jobs.put(JOB.join(job))
        self.expected.extend((job, *pixel[2:]) for pixel in pixels(chain, CONFIG.vector_words))

    def may_read(self, job: dict, address: int, first: bool) -> bool:
        """Whether the unit may read the pixel in this cycle."""
        if not self.expected or first and not self.dut.room.value:
            return False
        if job["memory"] == ENTRIES:
            return not self.writers.blocked(job["older"], address)
        return not self.pipes.blocked(job["source"], job["memory"], address)

    def check_output(self):
        """Compare the pixel that comes out with the one that was read `AFTER` cycles ago."""
        due = self.taken.popleft() if len(self.taken) == AFTER else None
        valid, payload = int(self.dut.o.value) & 1, int(self.dut.o.value) >> 1
        assert bool(valid) == bool(due)
        if due:
            job, value, part, first, last = due
            got = PIXEL.of(payload)
            assert {name: got[name] for name in ("first", "last", "pool")} == {
                "first": first, "last": last, "pool": job["pool"]}
            assert got["from_entries"] == (job["memory"] == ENTRIES)
            if job["memory"] == ENTRIES:
                lanes = CONFIG.mfu_lanes
                assert got["mode"] == job["mode"]
                assert got["lanes"]["exponent"] == value["exponent"]
                assert got["lanes"]["mantissas"] == {
                    k: value["mantissas"][part * lanes + k] for k in range(lanes)}
            else:
                assert self.vectors.word.join(got["word"]) == value

    async def cycle(self) -> bool:
        """Simulate one cycle, and return whether a pixel has been read."""
        dut = self.dut
        await clock(dut)
        self.check_output()
        job, address, part, first, last = self.expected[0] if self.expected else ({"memory": 0}, 0, 0, False, False)
        request, entry_read = REQUEST.of(int(dut.vectors__request.value)), int(dut.vector_rf__request.value)
        from_entries, go = job["memory"] == ENTRIES, bool(dut.busy.value)
        asks = bool(entry_read & 1 if from_entries else request["valid"])
        assert request["valid"] + (entry_read & 1) == asks
        assert not asks or self.may_read(job, address, first), "the pixel may still be written, or has no room"
        self.late = self.late + 1 if dut.waits.value and not asks and self.may_read(job, address, first) else 0
        assert self.late <= LATE, "the pixel may be read, and is not"
        if request["valid"]:
            assert (request["memory"], request["address"]) == (job["memory"], address)
        if entry_read & 1:
            assert entry_read >> 1 == address
        assert go == (asks and bool((dut.vector_rf__grant if from_entries else dut.vectors__grant).value))
        assert bool(dut.take.value) == (go and first)
        assert not (go and dut.waits.value)
        came = self.random.getrandbits(ENTRY.width)
        if go:
            self.expected.popleft()
            value = self.entries[address] if from_entries else self.vectors.contents[job["memory"]][address]
            came = ENTRY.join(value) if from_entries else came
        self.coming.append(came)
        dut.vector_rf__entry.value = self.coming.popleft()
        self.taken.append((job, value, part, first, last) if go else None)
        self.drive()
        return go

    def drive(self):
        dut = self.dut
        self.pipes.advance()
        self.writers.advance()
        dut.writers.value, dut.entries.value = self.writers.payloads
        dut.vector_rf__grant.value, dut.room.value = (int(self.random.random() >= self.stall) for _ in range(2))


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.4])
async def reads_each_pixel_in_time(dut, stall):
    """Random chains one after another, while older and younger chains write near them."""
    bench = Bench(dut, stall)
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    chains = chains_of_entries(CONFIG, rng, 120, lambda chain: chain.gathers)
    await start(dut)
    bench.taken.extend([None] * (AFTER - 1))
    bench.drive()
    for chain in chains:
        bench.put(chain)
        while len(bench.expected) > 40:
            await bench.cycle()
    while bench.expected or any(bench.taken):
        await bench.cycle()
