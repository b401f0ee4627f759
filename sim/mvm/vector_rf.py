"""Testbench of hw.mvm.vector_rf: entries of all banks, and who reads them first."""

from collections import deque

import cocotb
import numpy as np
from amaranth.lib import data
from concord.hw.lib.payloads import entry, entry_reads
from concord.hw.mvm.vector_rf import VectorRf, bank_read, entry_words
from concord.sim.drivers.bench import CONFIG, Packer, assert_equal
from concord.sim.drivers.stream import clock, start
from concord.sim.stimulus.random_values import random_block

TESTED = ("tiny", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "Mux(gather.valid, gather.address, host.address)", "new": "gather.address"},
    {"old": "delay(m, bank, self.latency)", "new": "delay(m, bank, 1)", "config": "wide"},
    {"old": "Mux(write.valid & (bank == j), write.words, 0)", "new": "(write.valid & (bank == j)).replicate(words)"},
)

FORMAT, N, LANES, ENGINES, ENTRIES = (
    CONFIG.activations, CONFIG.native_dim, CONFIG.mfu_lanes, CONFIG.tile_engines, CONFIG.vector_rf)
WRITE, ENTRY = Packer(entry_words(CONFIG)), Packer(entry(CONFIG))
READ = Packer(entry_reads(CONFIG).members["request"].shape)
COLUMNS, BANKS = (Packer(data.ArrayLayout(shape, ENGINES)) for shape in (bank_read(CONFIG), entry(CONFIG)))
SINGLE = ("gather", "host")


class Bench:
    """The unit, and what its entries should hold."""

    def __init__(self, dut, rng):
        self.dut, self.rng = dut, rng
        self.contents: dict[int, dict] = {}  # entries that have been written whole
        self.written, self.checked = None, 0
        self.wanted: deque[dict] = deque({} for _ in range(VectorRf.latency))  # entries that are due, the next first

    def drive(self):
        """Write words of an entry, and read entries of all kinds."""
        dut, rng = self.dut, self.rng
        near = [int(a) % ENTRIES for a in rng.integers(0, 8, 2 + len(SINGLE))] if rng.random() < 0.5 else [
            int(a) for a in rng.integers(0, ENTRIES, 2 + len(SINGLE))]
        address = near[0]
        words = int(rng.integers(1, 1 << CONFIG.vector_words)) if address in self.contents else (
            (1 << CONFIG.vector_words) - 1)
        value = random_block(rng, FORMAT, N)
        if words != (1 << CONFIG.vector_words) - 1:  # all words of an entry come with one exponent
            value["exponent"] = self.contents[address]["exponent"]
        valid = rng.random() < 0.7
        dut.write.value = WRITE.join({"valid": valid, "address": address, "words": words, "entry": value})
        self.written = (address, words, value) if valid else None
        self.columns = {b: (rng.random() < 0.4, int(rng.integers(ENTRIES // ENGINES))) for b in range(ENGINES)}
        dut.columns.value = COLUMNS.join([{"valid": valid, "index": index} for valid, index in self.columns.values()])
        self.single = {name: (rng.random() < 0.6, near[2 + k]) for k, name in enumerate(SINGLE)}
        for name, (valid, at) in self.single.items():
            getattr(dut, f"{name}__request").value = READ.join({"valid": valid, "address": at})

    def check(self):
        """Check the entries that were read in the last cycle, and the grants of this one."""
        dut = self.dut
        banks = BANKS.of(int(dut.o.value))
        shown = {b: banks[b] for b in range(ENGINES)} | {
            name: ENTRY.of(int(getattr(dut, f"{name}__entry").value)) for name in SINGLE}
        due = self.wanted.popleft()
        for port, want in due.items():
            assert_equal(f"entry for {port}", shown[port], want)
        self.checked += len(due)
        reads = {b: index * ENGINES + b for b, (valid, index) in self.columns.items() if valid}
        taken = False
        for name, (valid, address) in self.single.items():
            served = valid and not taken and not self.columns[address % ENGINES][0]
            assert bool(getattr(dut, f"{name}__grant").value) == served, name
            taken |= valid
            if served:
                reads[name] = address
        writes = self.written and self.written[0]  # what a read yields during a write is undefined
        self.wanted.append({port: self.contents[address] for port, address in reads.items()
                            if address in self.contents and address != writes})
        if self.written:
            address, words, value = self.written
            before = self.contents.get(address, value)["mantissas"]
            merged = {k: (value["mantissas"] if words >> k // LANES & 1 else before)[k] for k in range(N)}
            self.contents[address] = {"mantissas": merged, "exponent": value["exponent"]}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reads_what_was_written(dut):
    """Words are written in random order while products, the gather unit and the host read any entry."""
    bench = Bench(dut, np.random.default_rng(cocotb.RANDOM_SEED))
    for name in ("write", "columns", *(f"{name}__request" for name in SINGLE)):
        getattr(dut, name).value = 0
    await start(dut)
    bench.drive()
    for _ in range(4000):
        await clock(dut)
        bench.check()
        bench.drive()
    assert bench.checked > 2000
    assert len(bench.contents) == ENTRIES
