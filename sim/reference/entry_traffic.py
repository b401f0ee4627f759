"""Chains that use VectorRf around a matrix-vector multiplier: writers in order, and reads of products and others."""

from collections import deque

import numpy as np
from concord.golden.mvm.quantizer import invalid
from concord.golden.mvm.vector_rf import VectorRf
from concord.hw.lib import message_payloads
from concord.hw.lib.jobs import ENTRY_WRITERS, TICKET, column_job, entry_job, entry_progress, entry_writers
from concord.hw.lib.payloads import ENTRY_READ, entry, entry_reads, entry_word
from concord.hw.mvm.mvm import events
from concord.sim.drivers.bench import Packer, assert_equal, stored
from concord.sim.drivers.stream import StreamSource, every_cycle
from concord.sim.reference.hazards import ahead
from concord.sim.stimulus import products
from concord.sim.stimulus.entry_chains import columns
from concord.sim.stimulus.products import EntryWrites
from concord.sim.stimulus.random_values import block_fields, legal
from concord.spec.isa.chain import Chain
from concord.spec.machine.config import Config

READERS = ("gather", "host")  #: Units that read single entries.


class EntryTraffic:
    """Drives all ports of `dut` that belong to VectorRf, as the interlock of a machine would.

    Attributes:
        golden:  VectorRf after all chains so far.
        landed:  Mantissas and exponent of each entry, as far as chains have written it.
        blocks:  Number of entries that chains have to write. invalid: Whether their words hold a NaN or an infinity.
        checked: Number of single entries that were read.
    """

    def __init__(self, dut, config: Config, rng, *, stall: float):
        self.dut, self.config, self.rng, self.stall = dut, config, rng, stall
        self.golden = VectorRf(config)
        self.landed: list[dict] = []
        self.sources = {name: StreamSource(dut, name, stall=stall)
                        for name in ("columns", "entry_job", "host_write")}
        shapes = {"columns": column_job, "entry_job": entry_job, "writers": entry_writers, "word": entry_word,
                  "progress": entry_progress, "entry": entry,
                  "host_write": message_payloads.entry_write}
        self.record = {name: Packer(shape(config)) for name, shape in shapes.items()}
        self.record["read"] = Packer(entry_reads(config).members["request"].shape)
        self.plan: deque = deque()  # writers in program order, which the interlock has not dispatched
        self.flight: deque = deque()  # (address, entry) in the order of their writes
        self.words: deque = deque()  # (number of a job, products that must be done, payload of a word)
        self.slots = {k: {"ticket": 0, "lo": 0, "hi": 0} for k in range(ENTRY_WRITERS)}
        self.reads: list[tuple[int, int, int]] = []  # number of a product, and the range that it reads
        self.count = self.planned = self.products = self.blocks = self.checked = 0
        self.jobs = deque([0, 0, 0], maxlen=3)  # number of jobs that were taken, up to this cycle and the two before
        self.invalid, self.asked = False, {}
        self.wanted: deque[dict] = deque({} for _ in range(ENTRY_READ))  # entries that are due, the next first
        self.written = events(config)["entries_written"].offset
        for name in ("entry_writers", "entry_word", *(f"{reader}__request" for reader in READERS)):
            getattr(dut, name).value = 0

    async def fill(self):
        """Let the host write every entry, and begin to serve the ports."""
        config, fmt, rng = self.config, self.config.activations, self.rng
        count = config.vector_rf
        self.golden.mantissas[:] = legal(rng.integers(fmt.lowest, fmt.highest + 1, (count, config.native_dim)), fmt)
        self.golden.exponents[:] = rng.integers(0, fmt.e_max - fmt.e_min + 1, count)
        self.landed = [self.entry(address) for address in range(count)]
        await self.sources["host_write"].send(*(
            self.record["host_write"].join({"address": address, "entry": value})
            for address, value in enumerate(self.landed)))
        every_cycle(self.dut, self._cycle)

    def entry(self, address: int) -> dict:
        """The entry that all chains so far leave at `address`."""
        golden = self.golden
        return block_fields(stored(golden.mantissas[address], self.config.activations), golden.exponents[address])

    def read(self, chain: Chain, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Plan the reads of a product, number `number` of all products, and return its mantissas and exponents."""
        span = chain.source_span()
        self.reads.append((number, span.start, span.stop))
        self.plan.append(("columns", self.record["columns"].join(
            products.entry_columns(chain, self.planned % (1 << TICKET)))))
        at = columns(chain)
        return self.golden.mantissas[at].astype(np.int64), self.golden.exponents[at]

    def write(self):
        """Plan a chain that writes entries."""
        config, rng = self.config, self.rng
        chain, values = EntryWrites(config, rng, lines=2, wild=rng.random() < 0.3), []
        for address, block in zip(chain.addresses.ravel(), chain.blocks.reshape(-1, config.native_dim), strict=True):
            self.golden.store(np.array([address]), block[None], **chain.mode)
            values.append((int(address), self.entry(address)))
        self.blocks, self.invalid = self.blocks + len(values), self.invalid | invalid(chain.bits)
        self.planned += 1
        due = max((number + 1 for number, start, stop in self.reads if start < chain.hi and chain.lo < stop), default=0)
        stream = [(due, self.record["word"].join({"valid": 1, "word": word.tolist(), "last": k % chain.words == 0}))
                  for k, word in enumerate(chain.bits, 1)]
        self.plan.append(("entry_job", chain.job, values, stream))

    @property
    def idle(self) -> bool:
        """Whether all planned chains have written their entries."""
        return not (self.plan or self.flight or self.words)

    def _dispatch(self, done: int):
        """Dispatch planned chains in order, as long as there is a slot for the next writer."""
        while self.plan:
            name, *job = self.plan[0]
            if name == "columns":
                self.sources["columns"].put(*job)
            else:
                if ahead((self.count + 1 - ENTRY_WRITERS) % (1 << TICKET), done) > 0:
                    return
                record, values, stream = job
                self.count += 1
                self.slots[self.count % ENTRY_WRITERS] = {
                    "ticket": self.count % (1 << TICKET), "lo": record["write"]["lo"], "hi": record["write"]["hi"]}
                self.sources["entry_job"].put(self.record["entry_job"].join(record))
                self.flight.extend(values)
                self.words.extend((self.count, due, payload) for due, payload in stream)
            self.plan.popleft()

    def _cycle(self):
        dut, rng = self.dut, self.rng
        self._check_reads()
        if int(dut.events.value) >> self.written & 1:
            address, value = self.flight.popleft()
            self.landed[address] = value
        self.products += int(dut.product_done.value)
        self.jobs.append(self.jobs[-1] + (int(dut.entry_job__valid.value) & int(dut.entry_job__ready.value)))
        done = self.record["progress"].of(int(dut.entry_progress.value))["done"]
        self._dispatch(done)
        dut.entry_writers.value = self.record["writers"].join(self.slots)
        word = int(rng.integers(1 << 16)) << 1  # noise without `valid`
        if self.words and self.words[0][0] <= self.jobs[0] and self.words[0][1] <= self.products and (
                rng.random() >= self.stall):
            word = self.words.popleft()[2]
        dut.entry_word.value = word
        self._read_single(done)

    def _read_single(self, done: int):
        """Read entries that no unfinished chain may write."""
        self.asked = {}
        for reader in READERS:
            address, valid = int(self.rng.integers(self.config.vector_rf)), self.rng.random() < 0.3
            valid &= not any(ahead(slot["ticket"], done) > 0 and slot["lo"] <= address < slot["hi"]
                             for slot in self.slots.values())
            request = self.record["read"].join({"valid": valid, "address": address})
            getattr(self.dut, f"{reader}__request").value = request
            if valid:
                self.asked[reader] = address

    def _check_reads(self):
        """Compare the entries that were granted ENTRY_READ cycles ago, and note those that are granted now."""
        due = self.wanted.popleft()
        for reader, want in due.items():
            got = self.record["entry"].of(int(getattr(self.dut, f"{reader}__entry").value))
            assert_equal(f"entry for {reader}", got, want)
        self.checked += len(due)
        granted = [reader for reader in self.asked if int(getattr(self.dut, f"{reader}__grant").value)]
        self.wanted.append({reader: self.landed[self.asked[reader]] for reader in granted})
