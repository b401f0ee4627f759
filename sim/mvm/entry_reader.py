"""Testbench of hw.mvm.entry_reader: each beat sees the columns of its step, and none that may still be written."""

from collections import deque

import cocotb
import numpy as np
from amaranth.lib import data
from cocotb.triggers import FallingEdge
from concord.hw.lib.payloads import entry
from concord.hw.mvm.column_walker import column_addresses
from concord.hw.mvm.entry_reader import EntryReader
from concord.hw.mvm.operand_buffer import operand
from concord.hw.mvm.vector_rf import VectorRf, bank_read
from concord.sim.drivers.bench import CONFIG, Packer, assert_equal, stored
from concord.sim.drivers.stream import StreamSource, clock, start
from concord.sim.reference.hazards import EntryPipeline
from concord.sim.stimulus import products
from concord.sim.stimulus.random_values import block_fields, mantissas

TESTED = ("serial", "wide")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "steps.i.valid.eq(valid & certain)", "new": "steps.i.valid.eq(valid)"},
    {"old": "delay(m, early[j], self.latency)", "new": "0", "config": "wide"},
    {"old": "done | Mux(self.conflict, picked, 0)", "new": "0", "config": "wide"},
    {"old": "delay(m, self.group, self.latency)", "new": "delay(m, self.group, 1)"},
)

N, LANES, ENGINES, GROUPS = CONFIG.native_dim, CONFIG.lanes, CONFIG.tile_engines, CONFIG.groups
STEP, ENTRY = Packer(column_addresses(CONFIG)), Packer(entry(CONFIG))
READS, OPERANDS = (Packer(data.ArrayLayout(shape(CONFIG), ENGINES)) for shape in (bank_read, operand))


def steps(rng, count: int) -> list[list[int]]:
    """Addresses of random steps: neighbours, equal ones, some in one bank, and any."""
    found = []
    for _ in range(count):
        first, columns = int(rng.integers(CONFIG.vector_rf)), int(rng.integers(1, ENGINES + 1))
        stride = int(rng.choice([0, 1, 1, 1, 2, ENGINES, int(rng.integers(CONFIG.vector_rf))]))
        found.append([(first + k * stride) % CONFIG.vector_rf for k in range(columns)])
    return found


class Bench:
    """The unit between a walk, a register file, and beats that go at random.

    Attributes:
        conflicts: Number of cycles in which columns were read early.
    """

    def __init__(self, dut, chosen, stall: float):
        self.dut, self.chosen, self.rng = dut, chosen, np.random.default_rng(cocotb.RANDOM_SEED)
        fmt = CONFIG.activations
        self.mantissas = stored(mantissas(self.rng, fmt, (CONFIG.vector_rf, N)), fmt)
        self.exponents = self.rng.integers(0, fmt.e_max - fmt.e_min + 1, CONFIG.vector_rf)
        self.writers = EntryPipeline(CONFIG, cocotb.RANDOM_SEED)
        self.source = StreamSource(dut, "i", stall=stall)
        self.conflicts = 0
        self.coming = deque([0] * (VectorRf.latency - 1))  # entries that have been read and do not show yet
        self.older: list[int] = []  # ticket for each step that has been queued
        for name in ("go", "group", "end", "entries", "writers", "progress"):
            getattr(dut, name).value = 0

    def feed(self):
        """Queue the next steps; each waits for the chains that are unfinished now."""
        while len(self.source.queue) < 2 and len(self.older) < len(self.chosen):
            step = self.chosen[len(self.older)]
            self.older.append(self.writers.older())
            self.source.put(STEP.join({"addresses": step + [0] * (ENGINES - len(step)), "columns": len(step),
                                       "older": self.older[-1]}))

    def cycle(self, step: int, *, gone: bool, busy: bool):
        """Check what the unit did in the last cycle, for a step of which a beat may have gone, and serve its reads."""
        dut = self.dut
        if gone or dut.conflict.value:
            waits = [address for address in self.chosen[step] if self.writers.blocked(self.older[step], address)]
            assert not waits, f"the entries {waits} may still be written"
        self.conflicts += int(dut.conflict.value)
        banks = {b: int.from_bytes(self.rng.bytes(ENTRY.width // 8 + 1)) & (1 << ENTRY.width) - 1
                 for b in range(ENGINES)}
        for b, read in READS.of(int(dut.reads.value)).items():
            if read["valid"]:
                address = read["index"] * ENGINES + b
                banks[b] = ENTRY.join(block_fields(self.mantissas[address], self.exponents[address]))
        self.coming.append(sum(value << b * ENTRY.width for b, value in banks.items()))
        dut.entries.value = self.coming.popleft()
        self.feed()
        if busy:
            self.writers.advance()
        dut.writers.value, dut.progress.value = self.writers.payloads

    def operands(self, step: list[int], group: int) -> dict:
        """The operands of a beat, one for each column."""
        part = slice(group * LANES, (group + 1) * LANES)
        return {j: block_fields(self.mantissas[a, part], self.exponents[a]) for j, a in enumerate(step)}


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize((("pace", "stall", "busy"), [(1.0, 0.0, False), (1.0, 0.0, True), (0.4, 0.5, True)]))
async def reads_what_beats_need(dut, pace, stall, busy):
    """Beats go as soon as they may, or slowly; while chains write, each step waits for its columns alone."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    chosen = steps(rng, 300)
    bench = Bench(dut, chosen, stall)
    await start(dut)
    cycles = least = 0
    wanted = deque({} for _ in range(EntryReader.latency))  # operands that are due, the next ones first
    for number, step in enumerate(chosen):
        beats = int(rng.integers(1, GROUPS + 1))
        least += products.duration(CONFIG, step) + beats - 1
        for group in range(beats):
            gone = False
            while not gone:
                await FallingEdge(dut.clk)
                gone = bool(dut.ready.value) and rng.random() < pace
                dut.go.value, dut.group.value, dut.end.value = gone, group, group == beats - 1
                await clock(dut)
                assert_equal("o", OPERANDS.of(int(dut.o.value)), wanted.popleft())
                wanted.append(bench.operands(step, group) if gone else {})
                bench.cycle(number, gone=gone, busy=busy)
                cycles += 1
    assert bench.conflicts == sum(products.duration(CONFIG, step) - 1 for step in chosen)
    assert busy or pace < 1 or cycles <= least + 7, f"{cycles} cycles, of which {least} are needed"
