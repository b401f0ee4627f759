"""Testbench of hw.mvm.entry_writer against golden.mvm.quantizer: entries, where they lie, and the progress."""

from collections import deque

import cocotb
import numpy as np
from concord.golden.mvm.quantizer import invalid, quantize
from concord.hw.lib import message_payloads
from concord.hw.lib.jobs import ENTRY_WRITERS, entry_job, entry_progress
from concord.hw.lib.payloads import entry_word
from concord.hw.mvm.vector_rf import entry_words
from concord.sim.drivers.bench import CONFIG, Packer, assert_equal, stored
from concord.sim.drivers.stream import StreamSource, clock, start
from concord.sim.stimulus.products import EntryWrites
from concord.sim.stimulus.random_values import random_block

CONFIGURATIONS = ("tiny", "serial", "wide", "tiny_float")
TESTED = ("tiny", "serial", "wide", "tiny_float")
MUTANTS = (  #: Lines that the campaign `mutants` breaks, one at a time: a test must fail.
    {"old": "Mux(column.last, job.row, job.stride)", "new": "Mux(column.last, job.stride, job.row)"},
    {"old": "Mux(modes.ready, 1, turn + 1)", "new": "1"},
    {"old": "job.rising | turn.last", "new": "1"},
    {"old": "Mux(unsigned, Const(-fmt.zero", "new": "Mux(0, Const(-fmt.zero"},
    {"old": "code[-1] & code[:-1].any()", "new": "code[-1]", "file": "hw/lib/elements.py", "config": "tiny_float"},
    {"old": "self.host.ready.eq(~o.valid)", "new": "self.host.ready.eq(1)"},
)

N, LANES, WORDS, ENTRIES = CONFIG.native_dim, CONFIG.mfu_lanes, CONFIG.vector_words, CONFIG.vector_rf
JOB, WORD, WRITE, PROGRESS, HOST = (Packer(shape(CONFIG)) for shape in (
    entry_job, entry_word, entry_words, entry_progress, message_payloads.entry_write))


class WritingChain(EntryWrites):
    """A chain that writes VectorRf, and the entries that it should write, in order."""

    def __init__(self, rng):
        super().__init__(CONFIG, rng, lines=3, wild=True)
        mantissas, exponents = quantize(self.blocks, CONFIG.activations, **self.mode)
        # (iteration, address, mantissas, exponent, number of words that come) of each entry
        self.entries = [(t, int(address), mantissas[t, k], int(exponents[t, k]), min(WORDS, self.words - k * WORDS))
                        for (t, k), address in np.ndenumerate(self.addresses)]


class ExpectedMemory:
    """What the writes make of VectorRf, and the progress that they should show."""

    def __init__(self, dut, chains):
        self.dut, self.chains, self.done = dut, chains, 0
        self.left = deque((number, *entry) for number, chain in enumerate(chains) for entry in chain.entries)
        self.part, self.contents = 0, {}
        self.hosts = deque()  # entries that the host writes
        self.before = 0, 0  # progress of the cycle before, which is shown now

    def low(self) -> int:
        """The lowest entry that the present chain has not written, or 0 if it may write any entry again."""
        number, iteration, address, *_ = self.left[0]
        chain = self.chains[number]
        return address if chain.rising or iteration == chain.iterations - 1 else 0

    def cycle(self, begun: int):
        """Check one cycle, in which the jobs of `begun` chains have left their queue."""
        dut = self.dut
        shown = PROGRESS.of(int(dut.progress.value))
        assert (shown["done"], shown["low"]) == self.before
        self.before = self.done % 128, self.low() if begun > self.done else 0
        write = WRITE.of(int(dut.write.value))
        by_host = bool(dut.host__valid.value and dut.host__ready.value)
        if by_host:
            assert (write["valid"], write["words"]) == (1, (1 << WORDS) - 1)
            assert {"address": write["address"], "entry": write["entry"]} == self.hosts.popleft()
        written = False
        if write["valid"] and not by_host:
            number, iteration, address, values, exponent, words = self.left[0]
            self._store(write)
            self.part += 1
            written = self.part == words
            if written:
                given = {"chain": number, "iteration": iteration, "address": address}
                got = self.contents[address]
                assert_equal("mantissas", [got[k][0] for k in range(N)], stored(values, CONFIG.activations), **given)
                assert_equal("exponent", [got[k][1] for k in range(N)], np.full(N, exponent), **given)
                self.part = 0
                self.left.popleft()
                self.done += not self.left or self.left[0][0] != number
        assert bool(dut.written.value) == written

    def _store(self, write):
        into = self.contents.setdefault(write["address"], {})
        for k in range(N):
            if write["words"] >> k // LANES & 1:
                into[k] = write["entry"]["mantissas"][k], write["entry"]["exponent"]


def entry_of_the_host(rng) -> dict:
    """An entry at a random address."""
    return {"address": int(rng.integers(ENTRIES)), "entry": random_block(rng, CONFIG.activations, N)}


def with_minus_zeros(sent: dict) -> dict:
    """An entry of the host in which floats that are 0 have the code of -0, which must not reach VectorRf."""
    fmt, entry = CONFIG.activations, sent["entry"]
    zero = 1 << fmt.code_bits - 1 if fmt.precision else 0
    return sent | {"entry": entry | {"mantissas": {k: code or zero for k, code in entry["mantissas"].items()}}}


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5, 0.95])
async def writes_entries_in_order(dut, stall):
    """Chains of all lengths and modes, with words in every cycle or few; the first word comes soon after its job.

    The host writes entries between them.
    """
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    chains = [WritingChain(rng) for _ in range(60)]
    source, host = (StreamSource(dut, name) for name in ("job", "host"))
    await start(dut, "word")
    memory = ExpectedMemory(dut, chains)
    memory.hosts.extend(entry_of_the_host(rng) for _ in range(100))
    host.put(*(HOST.join(with_minus_zeros(sent)) for sent in memory.hosts))
    words = deque((number, k, word) for number, chain in enumerate(chains) for k, word in enumerate(chain.bits))
    counts, cycle, taken, queued = {"block": 0, "invalid": 0}, 0, [], 0
    while memory.left or memory.hosts:
        await clock(dut)
        cycle += 1
        if dut.job__valid.value:
            assert dut.job__ready.value, "a job is not taken at once"
            taken.append(cycle)
        memory.cycle(sum(at + 3 <= cycle for at in taken))
        for name in counts:
            counts[name] += int(getattr(dut, name).value)
        while queued < len(chains) and queued - memory.done < ENTRY_WRITERS:
            source.put(JOB.join(chains[queued].job))
            queued += 1
        dut.word.value = int(rng.integers(1 << 16))  # noise without `valid`, which is the lowest bit
        if words and words[0][0] < len(taken) and cycle >= taken[words[0][0]] + 1 and rng.random() >= stall:
            number, k, word = words.popleft()
            last = (k + 1) % chains[number].words == 0
            dut.word.value = WORD.join({"valid": 1, "word": word.tolist(), "last": last})
        else:
            dut.word.value = int(dut.word.value) & ~1
        assert cycle < 100000
    assert counts["block"] == sum(len(chain.entries) for chain in chains)
    assert counts["invalid"] == sum(invalid(word) for chain in chains for word in chain.bits)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def takes_entries_of_the_host(dut):
    """Entries of the host are written whole."""
    rng = np.random.default_rng(cocotb.RANDOM_SEED)
    host = StreamSource(dut, "host", stall=0.3)
    StreamSource(dut, "job")
    await start(dut, "word")
    memory = ExpectedMemory(dut, [])
    memory.hosts.extend(entry_of_the_host(rng) for _ in range(100))
    host.put(*(HOST.join(with_minus_zeros(sent)) for sent in memory.hosts))
    while memory.hosts:
        await clock(dut)
        memory.cycle(0)
